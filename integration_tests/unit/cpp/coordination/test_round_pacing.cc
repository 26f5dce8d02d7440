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
