// When steps are armed: what ranks see of messages, and what follows.

#include <string>
#include <vector>

#include "core/armed/step_watch.h"
#include "doctest/doctest.h"

using paceline::core::StepWatch;
using paceline::core::Unarmed;
using paceline::core::WatchedMessage;
using State = StepWatch::State;

namespace {

// Each letter a message: 'a' is of group 0, 'b' of group 1, ...; 'A', 'B', ... are others of the same groups, '.' is no
// part of the plan.
WatchedMessage Of(char letter, bool fits = true) {
  if (letter == '.') {
    return {};
  }
  const bool upper = letter < 'a';
  return {letter, letter - (upper ? 'A' : 'a'), fits};
}

void Play(StepWatch& watch, const std::string& messages) {
  for (const char letter : messages) {
    watch.Performed(Of(letter));
  }
}

// Up to where its steps are armed.
StepWatch Armed(const std::string& step, int32_t groups) {
  StepWatch watch;
  watch.Follow(groups);
  for (int n = 0; n <= StepWatch::kSteps; ++n) {
    Play(watch, step);
  }
  return watch;
}

void RunStep(StepWatch& watch, const std::string& first) {
  Play(watch, first);
  REQUIRE(watch.state() == State::kRunning);
  watch.Ended(true);
}

}  // namespace

TEST_CASE("a plan of one group has nothing to arm") {
  StepWatch watch;
  CHECK(watch.why() == Unarmed::kNoPlan);
  watch.Follow(1);
  Play(watch, "aaaaaaa");
  CHECK(watch.state() == State::kOff);
  CHECK(watch.why() == Unarmed::kNoPlan);
}

TEST_CASE("equal steps are proved, then armed, then run") {
  StepWatch watch;
  watch.Follow(3);
  Play(watch, "bc");  // in the middle of a step
  Play(watch, "abcabc");
  CHECK(watch.state() == State::kWatching);
  CHECK(watch.why() == Unarmed::kWatching);
  Play(watch, "a");
  CHECK(watch.state() == State::kProved);
  Play(watch, "b");
  CHECK(watch.state() == State::kProved);
  Play(watch, "c");
  CHECK(watch.state() == State::kArmed);
  CHECK(watch.why() == Unarmed::kNothing);
  CHECK(watch.step().size() == 3);
  CHECK(watch.first() == 1);
  for (int step = 0; step < 5; ++step) {
    Play(watch, "..");  // between steps
    CHECK(watch.state() == State::kArmed);
    RunStep(watch, "a");
    CHECK(watch.state() == State::kArmed);
  }
}

TEST_CASE("steps of a plan that was armed before") {
  auto watch = Armed("abc", 3);
  const auto before = watch.step();
  watch.Follow(0);
  Play(watch, "......");
  watch.Follow(3, before);
  Play(watch, "bc");  // in the middle of a step
  CHECK(watch.state() == State::kWatching);
  Play(watch, "a");
  CHECK(watch.state() == State::kProved);
  Play(watch, "bc");
  CHECK(watch.state() == State::kArmed);
  watch.Follow(3, before);
  Play(watch, "abC");
  CHECK(watch.state() == State::kWatching);
  Play(watch, "abCabC");
  CHECK(watch.state() == State::kArmed);
}

TEST_CASE("groups of several messages") {
  auto watch = Armed("aAbcC", 3);
  REQUIRE(watch.state() == State::kArmed);
  CHECK(watch.first() == 2);
  Play(watch, "a");
  CHECK(watch.state() == State::kArmed);
  RunStep(watch, "A");
}

TEST_CASE("steps that are not regular are never armed, and it is said why") {
  struct Case {
    std::string steps;
    Unarmed why;
  };
  const std::vector<Case> cases = {
      {"abacabacabac", Unarmed::kIncomplete}, {"acbacbacbacb", Unarmed::kIncomplete},
      {"abcbabcbabcb", Unarmed::kOrder},      {"ab.cab.cab.cab.c", Unarmed::kBetween},
      {"a.bca.bca.bc", Unarmed::kBetween},    {"abcabCabcabCabcabC", Unarmed::kUnequal},
      {"abcabcabCab", Unarmed::kUnequal},     {"ababababab", Unarmed::kIncomplete},
      {"aaaaaaaaaaa", Unarmed::kIncomplete},
  };
  for (const auto& one : cases) {
    CAPTURE(one.steps);
    StepWatch watch;
    watch.Follow(3);
    for (const char letter : one.steps) {
      Play(watch, std::string(1, letter));
      CHECK(watch.state() != State::kArmed);
    }
    CHECK(watch.why() == one.why);
  }
}

TEST_CASE("a message that cannot be carried") {
  StepWatch watch;
  watch.Follow(2);
  for (int n = 0; n < 10; ++n) {
    watch.Performed(Of('a'));
    watch.Performed(Of('b', false));
  }
  CHECK(watch.state() == State::kWatching);
  CHECK(watch.why() == Unarmed::kUnfit);
}

TEST_CASE("what is irregular while steps are armed is a strike, and too many are the end") {
  for (const std::string breach : {"b", "A", "ab"}) {
    CAPTURE(breach);
    auto watch = Armed("abc", 3);
    for (int strike = 1; strike <= StepWatch::kMostStrikes; ++strike) {
      REQUIRE(watch.state() == State::kArmed);
      Play(watch, breach);
      if (strike < StepWatch::kMostStrikes) {
        CHECK(watch.state() == State::kWatching);
        Play(watch, "abcabcabc");
      }
    }
    CHECK(watch.state() == State::kOff);
    CHECK(watch.why() == Unarmed::kGaveUp);
    watch.Follow(3);
    Play(watch, "abcabcabc");
    CHECK(watch.state() == State::kArmed);
  }
}

TEST_CASE("steps that are given up") {
  auto watch = Armed("ab", 2);
  for (int strike = 1; strike <= StepWatch::kMostStrikes; ++strike) {
    Play(watch, "a");
    REQUIRE(watch.state() == State::kRunning);
    watch.Ended(false);
    if (strike < StepWatch::kMostStrikes) {
      CHECK(watch.state() == State::kWatching);
      Play(watch, "b");  // what was left
      Play(watch, "ababab");
      REQUIRE(watch.state() == State::kArmed);
    }
  }
  CHECK(watch.why() == Unarmed::kGaveUp);
}

TEST_CASE("strikes are forgiven") {
  auto watch = Armed("ab", 2);
  for (int round = 0; round < 3 * StepWatch::kMostStrikes; ++round) {
    Play(watch, "a");
    watch.Ended(false);
    REQUIRE(watch.state() == State::kWatching);
    Play(watch, "bababab");
    for (int step = 0; step < StepWatch::kForgiving; ++step) {
      RunStep(watch, "a");
    }
  }
}
