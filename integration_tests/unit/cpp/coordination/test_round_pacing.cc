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
  CHECK_FALSE(pacing.Holds(at));
  CHECK(pacing.Held(at));
  CHECK(pacing.state() == State::kHeld);
  CHECK(pacing.Due() == at + RoundPacing::kHold);
  CHECK(pacing.Holds(at));
  CHECK_FALSE(pacing.Holds(at + RoundPacing::kHold));
  const auto later = at + milliseconds(3);
  CHECK_FALSE(pacing.Held(later));  // nobody need be woken for it
  CHECK(pacing.Due() == later + RoundPacing::kHold);
  SUBCASE("the last one comes") {
    CHECK(pacing.HandedIn());
    CHECK_FALSE(pacing.Holds(later));
    CHECK(pacing.Due() <= later);
    CHECK_FALSE(pacing.Held(later));  // what comes behind it sets no time
    CHECK(pacing.state() == State::kGathering);
  }
  SUBCASE("somebody waits") {
    CHECK(pacing.WaitedFor());
    CHECK(pacing.state() == State::kUrgent);
    CHECK_FALSE(pacing.Held(later));
    CHECK(pacing.Due() <= later);
  }
  SUBCASE("the last one never comes") {
    pacing.Entered(later + RoundPacing::kHold);
    CHECK(pacing.state() == State::kIdle);
    CHECK_FALSE(pacing.Holds(later + RoundPacing::kHold));
    pacing.HandedIn();
    CHECK(pacing.Due() == later + RoundPacing::kHold + kCycle);  // it took what there was
  }
  SUBCASE("what was held went without a round") {
    pacing.TakenUp();
    CHECK(pacing.Due() == kStart + kIdle);
  }
}

TEST_CASE("however much is held, a rank comes as soon as an idle one") {
  auto pacing = Begun();
  for (auto at = kStart; at < kStart + kIdle; at += milliseconds(5)) {
    pacing.Held(at);
  }
  CHECK(pacing.Due() == kStart + kIdle);
  CHECK_FALSE(pacing.Holds(kStart + kIdle));
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

}  // namespace

TEST_CASE("what went without a round needs none, and what comes after that does") {
  auto pacing = Begun();
  CHECK(pacing.HandedIn());
  CHECK(pacing.WaitedFor());
  pacing.TakenUp();
  CHECK(pacing.state() == State::kIdle);
  CHECK(pacing.Due() == kStart + kIdle);
  CHECK(pacing.HandedIn());
  CHECK(pacing.Due() <= kStart);
}
