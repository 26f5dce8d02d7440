// When steps are armed: what ranks see of messages, and what follows.

#include <array>
#include <string>
#include <vector>

#include "core/armed/step_watch.h"
#include "doctest/doctest.h"
#include "events.h"

using paceline::core::StepWatch;
using paceline::core::WatchedMessage;

namespace {

// Each letter of a script is a message: 'a' is of group 0, 'b' of group 1, ...; 'A', 'B', ... are others of the same
// groups, '.' is no part of the plan, '!' is of group 1 and cannot be carried. A word of messages, of a plan or of the
// end of an armed step has the state that follows as its result.
WatchedMessage Of(char letter) {
  switch (letter) {
    case '.':
      return {};
    case '!':
      return {letter, 1, false};
    default:
      return {letter, letter - (letter < 'a' ? 'A' : 'a'), true};
  }
}

struct Machine : events::Machine {
  Machine() {
    On("plan", [this](int64_t groups) { return Follow(groups, {}); });
    On("keep", [this] { kept = watch.step(); });
    On("known_plan", [this](int64_t groups) { return Follow(groups, kept); });
    On("complete", [this] { return Ended(true); });
    On("fallback", [this] { return Ended(false); });
    On("size", [this] { return watch.step().size(); });
    On("first", [this] { return watch.first(); });
    On("why", [this] {
      const std::array names = {"nothing", "no_plan", "watching", "incomplete",        "order",
                                "between", "unequal", "unfit",    "too_many_fallbacks"};
      return names.at(static_cast<size_t>(watch.why()));
    });
  }

  std::string Happen(const std::string& event) override {
    if (Known(event)) {
      return events::Machine::Happen(event);
    }
    for (const char letter : event) {
      watch.Performed(Of(letter));
    }
    return State();
  }
  std::string Follow(int64_t groups, const std::vector<WatchedMessage>& before) {
    watch.Follow(static_cast<int32_t>(groups), before);
    return State();
  }
  std::string Ended(bool complete) {
    watch.Ended(complete);
    return State();
  }
  std::string State() const {
    return std::array{"off", "watching", "proved", "armed", "running"}.at(static_cast<size_t>(watch.state()));
  }

  StepWatch watch;
  std::vector<WatchedMessage> kept;
};

static_assert(StepWatch::kSteps == 2 && StepWatch::kMostStrikes == 3);

constexpr events::Case kCases[] = {
    {"a plan of one group has nothing to arm", "why:no_plan plan1:off aaaaaaa:off why:no_plan"},
    {"equal steps are proved, then armed, then run; what comes between steps does not matter",
     "plan3:watching bc:watching abcabc:watching why:watching a:proved b:proved c:armed why:nothing size:3 first:1 "
     "..:armed a:running complete:armed ..:armed a:running complete:armed ..:armed a:running complete:armed"},
    {"steps of a plan that was armed before are proved as they begin, others are not",
     "plan3:watching abcabcabc:armed keep plan0:off ......:off known_plan3:watching bc:watching a:proved bc:armed "
     "known_plan3:watching abC:watching abCabC:armed"},
    {"groups of several messages", "plan3:watching aAbcCaAbcCaAbcC:armed first:2 a:armed A:running complete:armed"},
    {"a message that cannot be carried", "plan2:watching a!a!a!a!a!a!a!a!a!a!:watching why:unfit"},
    {"another message than the next is a strike, and too many are the end, until the next plan",
     "plan3:watching abcabcabc:armed b:watching abcabcabc:armed b:watching abcabcabc:armed b:off "
     "why:too_many_fallbacks "
     "plan3:watching abcabcabc:armed"},
    {"a message that differs from that of the steps before is a strike, too",
     "plan3:watching abcabcabc:armed A:watching abcabcabc:armed A:watching abcabcabc:armed A:off "
     "why:too_many_fallbacks"},
    {"a message that was not to be negotiated is a strike, too",
     "plan3:watching abcabcabc:armed ab:watching abcabcabc:armed ab:watching abcabcabc:armed ab:off "
     "why:too_many_fallbacks"},
    {"a step that is given up is a strike, too; what was left of it is negotiated",
     "plan2:watching ababab:armed a:running fallback:watching b:watching ababab:armed a:running fallback:watching "
     "b:watching ababab:armed a:running fallback:off why:too_many_fallbacks"},
};

}  // namespace

TEST_CASE("steps are watched, proved, armed and run") { events::PlayAll<Machine>(kCases); }

TEST_CASE("steps that are not regular are never armed, and it is said why") {
  struct Row {
    std::string steps, why;
  };
  const std::vector<Row> rows = {
      {"abacabacabac", "incomplete"},  {"acbacbacbacb", "incomplete"}, {"abcbabcbabcb", "order"},
      {"ab.cab.cab.cab.c", "between"}, {"a.bca.bca.bc", "between"},    {"abcabCabcabCabcabC", "unequal"},
      {"abcabcabCab", "unequal"},      {"ababababab", "incomplete"},   {"aaaaaaaaaaa", "incomplete"},
  };
  for (const auto& [steps, why] : rows) {
    CAPTURE(steps);
    Machine machine;
    machine.Play("plan3:watching");
    for (const char letter : steps) {
      machine.watch.Performed(Of(letter));
      CHECK(machine.State() != "armed");
    }
    machine.Play("why:" + why);
  }
}

TEST_CASE("strikes are forgiven") {
  Machine machine;
  machine.Play("plan2:watching ababab:armed");
  for (int round = 0; round < 3 * StepWatch::kMostStrikes; ++round) {
    machine.Play("a:running fallback:watching bababab:armed");
    for (int step = 0; step < StepWatch::kForgiving; ++step) {
      machine.Play("a:running complete:armed");
    }
  }
}
