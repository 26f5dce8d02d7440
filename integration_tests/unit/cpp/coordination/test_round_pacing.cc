#include <doctest/doctest.h>

#include <chrono>

#include "core/coordination/round_pacing.h"

namespace {

using paceline::core::RoundPacing;
using State = RoundPacing::State;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr milliseconds kCycle{1}, kIdle{1000};
const RoundPacing::Clock::time_point kStart{std::chrono::hours(1)};

// After a first round at kStart that took nothing.
RoundPacing Begun() {
  RoundPacing pacing;
  pacing.Set(kCycle, kIdle);
  CHECK(pacing.Due() <= kStart);
  pacing.Entered(kStart);
  return pacing;
}

TEST_CASE("an idle rank comes at the heartbeat") {
  auto pacing = Begun();
  CHECK(pacing.state() == State::kIdle);
  CHECK(pacing.Due() == kStart + kIdle);
  CHECK_FALSE(pacing.WaitedFor());  // waits for other ranks
  CHECK(pacing.Due() == kStart + kIdle);
  pacing.Entered(kStart + kIdle);
  CHECK(pacing.Due() == kStart + 2 * kIdle);
}

TEST_CASE("what comes after a pause goes at once") {
  auto pacing = Begun();
  CHECK(pacing.HandedIn());
  CHECK(pacing.state() == State::kGathering);
  CHECK(pacing.Due() <= kStart);
  CHECK_FALSE(pacing.HandedIn());  // nobody need be woken again
}

TEST_CASE("what comes within a cycle after that travels together") {
  auto pacing = Begun();
  pacing.HandedIn();
  const auto first = kStart + milliseconds(10);
  pacing.Entered(first);
  SUBCASE("nobody waits") {
    CHECK(pacing.HandedIn());
    CHECK(pacing.Due() == first + kCycle);
    CHECK_FALSE(pacing.HandedIn());
    CHECK(pacing.Due() == first + kCycle);
    pacing.Entered(first + kCycle);
    pacing.HandedIn();
    CHECK(pacing.Due() == first + 2 * kCycle);
  }
  SUBCASE("somebody waits") {
    pacing.HandedIn();
    CHECK(pacing.WaitedFor());
    CHECK(pacing.state() == State::kUrgent);
    CHECK(pacing.Due() <= first);
    CHECK_FALSE(pacing.WaitedFor());
    CHECK_FALSE(pacing.HandedIn());
    CHECK(pacing.state() == State::kUrgent);
  }
  SUBCASE("another rank calls a round in which this one has something") {
    pacing.HandedIn();
    pacing.Entered(first + microseconds(300));
    CHECK(pacing.state() == State::kIdle);
    pacing.HandedIn();
    CHECK(pacing.Due() == first + microseconds(300) + kCycle);
  }
  SUBCASE("another rank calls a round in which this one has nothing") {
    pacing.Entered(first + microseconds(300));
    pacing.HandedIn();
    CHECK(pacing.Due() == first + kCycle);
  }
}

TEST_CASE("what goes with others waits for them, and so does a round that another rank calls") {
  auto pacing = Begun();
  const auto at = kStart + milliseconds(100);
  CHECK(pacing.Called(at));
  CHECK(pacing.Held(at));  // sooner than an idle one
  CHECK(pacing.state() == State::kHeld);
  CHECK(pacing.Due() == at + RoundPacing::kRest);  // by itself it is in no hurry
  const auto next = at + milliseconds(60);
  CHECK_FALSE(pacing.Held(next));  // nobody need be woken for it
  CHECK(pacing.Due() == next + RoundPacing::kRest);
  SUBCASE("the last one comes") {
    CHECK(pacing.HandedIn());
    CHECK(pacing.Called(at));
    CHECK(pacing.Due() <= at);
    pacing.Held(at);  // what comes behind it sets no time
    CHECK(pacing.state() == State::kGathering);
  }
  SUBCASE("somebody waits") {
    CHECK(pacing.WaitedFor());
    CHECK(pacing.state() == State::kUrgent);
    pacing.Held(at);
    CHECK(pacing.Due() <= at);
  }
  const auto called = at + milliseconds(90);
  SUBCASE("another rank calls") {
    CHECK_FALSE(pacing.Called(called));
    CHECK(pacing.Due() == called + RoundPacing::kHold);
    CHECK_FALSE(pacing.Called(called + milliseconds(9)));
    CHECK(pacing.Due() == called + RoundPacing::kHold);  // the first call counts
    CHECK(pacing.Called(called + RoundPacing::kHold));
  }
  SUBCASE("another rank calls, and more comes") {
    CHECK_FALSE(pacing.Called(called));
    const auto later = called + milliseconds(3);
    pacing.Held(later);
    CHECK(pacing.Due() == later + RoundPacing::kHold);
    SUBCASE("the last one") {
      CHECK(pacing.HandedIn());
      CHECK(pacing.Called(later));
    }
    SUBCASE("which never comes") {
      pacing.Entered(later + RoundPacing::kHold);
      CHECK(pacing.state() == State::kIdle);
      CHECK(pacing.Called(later + RoundPacing::kHold));
      pacing.HandedIn();
      CHECK(pacing.Due() == later + RoundPacing::kHold + kCycle);  // it took what there was
    }
    SUBCASE("in a round of its own") {
      pacing.Entered(later + RoundPacing::kHold);
      pacing.Held(later + RoundPacing::kHold);
      CHECK(pacing.Due() == later + RoundPacing::kHold + RoundPacing::kRest);  // that call has been followed
    }
  }
  SUBCASE("what was held went without a round") {
    pacing.TakenUp(called);
    CHECK(pacing.Due() == called + kIdle);
  }
}

TEST_CASE("however much is held, a rank comes as soon as an idle one") {
  auto pacing = Begun();
  for (auto at = kStart; at < kStart + kIdle; at += milliseconds(5)) {
    pacing.Held(at);
  }
  CHECK(pacing.Due() == kStart + kIdle);
  CHECK(pacing.Called(kStart + kIdle));
}

TEST_CASE("a rank that may not sleep long comes soon, and never later with something than without") {
  auto pacing = Begun();
  pacing.Set(milliseconds(50), milliseconds(5));
  CHECK(pacing.Due() == kStart + milliseconds(5));
  pacing.HandedIn();
  pacing.Entered(kStart);
  pacing.HandedIn();
  CHECK(pacing.Due() == kStart + milliseconds(5));
}

TEST_CASE("without a cycle everything goes at once") {
  auto pacing = Begun();
  pacing.Set(milliseconds(0), kIdle);
  for (int n = 0; n < 3; ++n) {
    const auto now = kStart + microseconds(n);
    pacing.HandedIn();
    CHECK(pacing.Due() <= now);
    pacing.Entered(now);
  }
}

TEST_CASE("a rank whose next step is about to begin lets a round wait that another one calls") {
  auto pacing = Begun();
  pacing.HandedIn();
  pacing.TakenUp(kStart);
  const auto at = kStart + milliseconds(100);
  CHECK_FALSE(pacing.Called(at));
  CHECK_FALSE(pacing.Called(at + milliseconds(3)));
  CHECK(pacing.Due() == at + RoundPacing::kHold);
  CHECK_FALSE(pacing.WaitedFor());
  SUBCASE("it begins") {
    CHECK(pacing.HandedIn());
    CHECK(pacing.Due() <= at);
    CHECK(pacing.Called(at + milliseconds(3)));
  }
  SUBCASE("it begins with what goes with others") {
    const auto later = at + milliseconds(9);
    pacing.Held(later);
    CHECK(pacing.Due() == later + RoundPacing::kHold);
    CHECK_FALSE(pacing.Called(at + RoundPacing::kHold));
  }
  SUBCASE("it does not begin") {
    const auto later = at + RoundPacing::kHold;
    CHECK(pacing.Called(later));
    pacing.Entered(later);
    CHECK(pacing.state() == State::kIdle);
    CHECK(pacing.Called(later + milliseconds(1)));
    pacing.HandedIn();
    CHECK(pacing.Due() <= later);  // that round took nothing
  }
  SUBCASE("the step after that") {
    pacing.HandedIn();
    pacing.TakenUp(at);
    CHECK(pacing.Due() == at + kIdle);
    CHECK_FALSE(pacing.Called(at + milliseconds(50)));
    CHECK(pacing.Due() == at + milliseconds(50) + RoundPacing::kHold);
  }
}

TEST_CASE("a rank that expects a step comes as soon as an idle one") {
  auto pacing = Begun();
  pacing.TakenUp(kStart);
  CHECK_FALSE(pacing.Called(kStart + kIdle - milliseconds(1)));
  CHECK(pacing.Due() == kStart + kIdle);
  CHECK(pacing.Called(kStart + kIdle));
}

TEST_CASE("a step without a round, in which all ranks were there, counts as one: no heartbeat follows it") {
  auto pacing = Begun();
  pacing.HandedIn();
  pacing.Entered(kStart);
  pacing.HandedIn();
  const auto end = kStart + 3 * kIdle;  // a long one
  pacing.TakenUp(end);
  CHECK(pacing.Due() == end + kIdle);
}

TEST_CASE("what went without a round needs none, and what comes after that does") {
  auto pacing = Begun();
  CHECK(pacing.HandedIn());
  CHECK(pacing.WaitedFor());
  pacing.TakenUp(kStart);
  CHECK(pacing.state() == State::kExpecting);
  CHECK(pacing.Due() == kStart + kIdle);
  CHECK(pacing.HandedIn());
  CHECK(pacing.Due() <= kStart);
}

}  // namespace
