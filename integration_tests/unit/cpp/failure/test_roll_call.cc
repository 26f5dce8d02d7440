#include <doctest/doctest.h>

#include <chrono>
#include <set>

#include "core/failure/roll_call.h"

namespace {

using paceline::core::RollCall;
using Outcome = RollCall::Outcome;
using State = RollCall::State;

constexpr std::chrono::milliseconds kLimit{100};
const RollCall::Clock::time_point kStart{};

RollCall::Clock::time_point After(int milliseconds) { return kStart + std::chrono::milliseconds(milliseconds); }

TEST_CASE("rank 0 waits for all that it called, and for no longer") {
  RollCall roll(true, kLimit);
  CHECK(roll.Look(After(1000)) == Outcome::kNone);
  const auto number = roll.Begin({1, 2, 3}, kStart);
  CHECK(roll.state() == State::kCalling);
  CHECK(roll.until() == After(100));
  roll.Here(3, number, After(10));
  roll.Here(3, number, After(20));
  roll.Here(1, number, After(30));
  CHECK(roll.Look(After(99)) == Outcome::kNone);
  SUBCASE("all answer") {
    roll.Here(2, number, After(99));
    CHECK(roll.Look(After(500)) == Outcome::kAllHere);  // answers count, also if this rank reads them late
  }
  SUBCASE("the last one leaves") {
    roll.Gone(2);
    CHECK(roll.Look(After(99)) == Outcome::kAllHere);
  }
  SUBCASE("one does not answer") {
    CHECK(roll.Look(After(100)) == Outcome::kMissing);
    CHECK(roll.missing() == std::set<int32_t>{2});
  }
  CHECK(roll.state() == State::kIdle);
  CHECK(roll.Look(After(1000)) == Outcome::kNone);
}

TEST_CASE("several do not answer") {
  RollCall roll(true, kLimit);
  const auto number = roll.Begin({1, 2, 3}, kStart);
  roll.Here(2, number, After(1));
  CHECK(roll.Look(After(100)) == Outcome::kMissing);
  CHECK(roll.missing() == std::set<int32_t>{1, 3});
}

TEST_CASE("answers to an earlier call do not count") {
  RollCall roll(true, kLimit);
  const auto first = roll.Begin({1, 2}, kStart);
  roll.Here(1, first, After(1));
  CHECK(roll.Look(After(100)) == Outcome::kMissing);
  const auto second = roll.Begin({1, 2}, After(100));
  CHECK(second != first);
  roll.Here(2, first, After(110));
  roll.Here(1, second, After(110));
  CHECK(roll.Look(After(199)) == Outcome::kNone);
  CHECK(roll.Look(After(200)) == Outcome::kMissing);
  CHECK(roll.missing() == std::set<int32_t>{2});
}

TEST_CASE("with nobody to call, all are here") {
  RollCall roll(true, kLimit);
  roll.Begin({}, kStart);
  CHECK(roll.Look(kStart) == Outcome::kAllHere);
}

TEST_CASE("another rank hears from rank 0 first, and then of all") {
  RollCall roll(false, kLimit);
  const auto number = roll.Begin({0}, kStart);
  SUBCASE("rank 0 does not answer") {
    CHECK(roll.Look(After(99)) == Outcome::kNone);
    CHECK(roll.Look(After(100)) == Outcome::kMissing);
    CHECK(roll.missing() == std::set<int32_t>{0});
  }
  SUBCASE("rank 0 has left") {
    roll.Gone(0);
    CHECK(roll.Look(kStart) == Outcome::kAllHere);
  }
  SUBCASE("all are here before rank 0 has answered itself: of an earlier call") {
    roll.AllHere(number);
    CHECK(roll.Look(After(100)) == Outcome::kMissing);
  }
  SUBCASE("rank 0 counts") {
    roll.Here(0, number, After(50));
    CHECK(roll.state() == State::kCounting);
    CHECK(roll.Look(After(200)) == Outcome::kNone);
    SUBCASE("all are here") {
      roll.AllHere(number + 1);
      CHECK(roll.Look(After(210)) == Outcome::kNone);
      roll.AllHere(number);
      CHECK(roll.Look(After(210)) == Outcome::kAllHere);
    }
    SUBCASE("and then stops itself") {
      CHECK(roll.Look(After(349)) == Outcome::kNone);
      CHECK(roll.Look(After(350)) == Outcome::kMissing);
      CHECK(roll.missing() == std::set<int32_t>{0});
    }
    SUBCASE("and then leaves") {
      roll.Gone(0);
      CHECK(roll.Look(After(210)) == Outcome::kAllHere);
    }
  }
}

}  // namespace
