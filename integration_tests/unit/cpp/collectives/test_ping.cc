#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "core/collectives/ping.h"
#include "doctest/doctest.h"

using paceline::core::PingPong;

TEST_CASE("a message goes to and fro between the pair, and nobody else has anything to do") {
  using Kind = paceline::core::CollectiveSchedule::Operation::Kind;
  const auto there = PingPong({2, 4}, 5, {2, 0, 3}).operations;
  const auto back = PingPong({0, 4}, 5, {2, 0, 3}).operations;
  REQUIRE(there.size() == 6);
  REQUIRE(back.size() == 6);
  for (size_t n = 0; n < 6; ++n) {
    CHECK(there[n].kind == (n % 2 == 0 ? Kind::kSend : Kind::kReceive));
    CHECK(back[n].kind == (n % 2 == 0 ? Kind::kReceive : Kind::kSend));
    CHECK(there[n].peer == 0);
    CHECK(back[n].peer == 2);
    CHECK(there[n].count == 5);
    CHECK(there[n].tag == back[n].tag);
    if (n > 0) {  // one after the other
      const auto& after = there[n].after;
      CHECK(std::find(after.begin(), after.end(), static_cast<int32_t>(n) - 1) != after.end());
    }
  }
  CHECK(PingPong({1, 4}, 5, {2, 0, 3}).operations.empty());
  CHECK(PingPong({0, 4}, 0, {2, 0, 3}).operations.empty());
}

TEST_CASE("what is no pair is refused") {
  CHECK_THROWS_AS(PingPong({0, 2}, 1, {0, 0, 1}), std::invalid_argument);
  CHECK_THROWS_AS(PingPong({0, 2}, 1, {0, 2, 1}), std::invalid_argument);
  CHECK_THROWS_AS(PingPong({0, 2}, 1, {-1, 1, 1}), std::invalid_argument);
  CHECK_THROWS_WITH_AS(PingPong({0, 2}, 1, {0, 1, 0}), "no pair of the 2 ranks, and rounds: 0, 1, 0",
                       std::invalid_argument);
}
