#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/cases.h"
#include "core/collectives/ping.h"
#include "doctest/doctest.h"

using namespace collectives;
using paceline::core::PingPong;

TEST_CASE("operations come after earlier ones only, and without other ranks or values there are none") {
  for (const auto& algorithm : AllAlgorithms()) {
    ForAllCases(algorithm, [](const auto& schedules, int32_t p, const auto& message, int32_t) {
      for (const auto& schedule : schedules) {
        int32_t number = 0;
        for (const auto& operation : schedule.operations) {
          const int32_t latest = *std::max_element(operation.after.begin(), operation.after.end());
          CHECK(latest < number++);
          CHECK(operation.count >= 1);
        }
      }
      if (p == 1 || message.elements == 0) {
        CHECK(schedules.front().operations.empty());
      }
    });
  }
}

TEST_CASE("what is final is sent so that all can go on with the same values") {
  for (const auto& algorithm : AllAlgorithms()) {
    if (algorithm.name == "doubling") {
      continue;
    }
    ForAllCases(algorithm, [&](const auto& schedules, int32_t, const auto&, int32_t) {
      // Received into the result, but for what a direct allreduce goes on to add to: the sender has kept the same.
      std::map<std::tuple<int32_t, int32_t, int32_t>, bool> adopted;
      for (size_t rank = 0; rank < schedules.size(); ++rank) {
        for (const auto& operation : schedules[rank].operations) {
          if (operation.kind == Kind::kSend) {
            adopted[{static_cast<int32_t>(rank), operation.peer, operation.tag}] = operation.adopt;
          }
        }
      }
      for (size_t rank = 0; rank < schedules.size(); ++rank) {
        const auto& operations = schedules[rank].operations;
        for (size_t number = 0; number < operations.size(); ++number) {
          if (operations[number].kind == Kind::kReceive) {
            const bool combined = std::any_of(
                operations.begin() + static_cast<int64_t>(number), operations.end(), [&](const auto& later) {
                  return later.kind == Kind::kCombine && later.offset == operations[number].offset;
                });
            const bool final =
                adopted.at({operations[number].peer, static_cast<int32_t>(rank), operations[number].tag});
            CHECK(final == (operations[number].scratch < 0 && !combined));
          }
        }
      }
    });
  }
}

TEST_CASE("no more messages are under way between two ranks than were asked for") {
  for (const auto& algorithm : AllAlgorithms()) {
    for (const int32_t ahead : {1, 2, 5}) {
      const auto schedules = OnAll(3, [&](Place place) { return algorithm.make(place, {60, 2, ahead}, 1); });
      for (const auto& schedule : schedules) {
        std::map<std::pair<Kind, int32_t>, std::vector<int32_t>> messages;
        for (size_t number = 0; number < schedule.operations.size(); ++number) {
          const auto& operation = schedule.operations[number];
          if (operation.kind == Kind::kSend || operation.kind == Kind::kReceive) {
            auto& between = messages[{operation.kind, operation.peer}];
            if (between.size() >= static_cast<size_t>(ahead)) {
              const int32_t before = between[between.size() - static_cast<size_t>(ahead)];
              CHECK(std::count(operation.after.begin(), operation.after.end(), before) == 1);
            }
            between.push_back(static_cast<int32_t>(number));
          }
        }
      }
    }
  }
}

TEST_CASE("what makes no sense is refused, with what was found") {
  using namespace paceline::core;
  const auto refused = [](Place place, const BlockedMessage& message, const char* text) {
    CHECK_THROWS_WITH_AS(RingAllreduce(place, message), text, std::invalid_argument);
  };
  refused({0, 0}, {1, 1}, "a collective needs at least one rank, not 0");
  refused({3, 3}, {1, 1}, "there is no rank 3 in a collective of 3 ranks, counted from 0");
  refused({-1, 3}, {1, 1}, "there is no rank -1 in a collective of 3 ranks, counted from 0");
  refused({0, 3}, {-1, 1}, "a message cannot have -1 elements");
  refused({0, 3}, {1, 0}, "a block must have at least one element, not 0");
  refused({0, 3}, {1, 1, 0}, "at least one message must be under way at a time, not 0");
  CHECK_THROWS_WITH_AS(LinearReduce({0, 3}, {1, 1}, 3),
                       "root 3 is not among the 3 ranks of the collective, counted from 0", std::invalid_argument);
  CHECK_THROWS_AS(LinearBroadcast({0, 3}, {1, 1}, -1), std::invalid_argument);
  CHECK_THROWS_WITH_AS(LinearBroadcast({0, 3}, {1 << 22, 2}, 0),
                       "4194304 elements in blocks of 2 are more than 1048576 blocks; take larger blocks",
                       std::invalid_argument);
  constexpr auto kHuge = std::numeric_limits<int64_t>::max();
  CHECK_THROWS_AS(LinearBroadcast({0, 3}, {kHuge, 1}, 0), std::invalid_argument);
  CHECK(LinearBroadcast({0, 2}, {kHuge, kHuge}, 0).operations.size() == 1);
  CHECK(DoublingAllreduce({0, 2}, {kHuge, 1}).operations.front().count == kHuge);
}

TEST_CASE("allreduces are found by their names") {
  using namespace paceline::core;
  for (const char* name : {"linear", "ring", "direct", "doubling"}) {
    const AllreduceMethod method = AllreduceMethodOf(name);
    CHECK(NameOf(method) == doctest::String(name));
    const auto terms = Terms(OnAll(3, [&](Place place) { return Allreduce(method, place, {1, 1}); }), 1);
    CHECK(terms[0] == terms[2]);
    CHECK(terms[0][0] == "((ab)c)");
  }
  CHECK_THROWS_WITH_AS(AllreduceMethodOf("tree"),
                       "no allreduce is called 'tree'; known are: linear, ring, direct, doubling",
                       std::invalid_argument);
}

TEST_CASE("a message goes to and fro between the pair, and nobody else has anything to do") {
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

TEST_CASE("a ping of what is no pair is refused") {
  CHECK_THROWS_AS(PingPong({0, 2}, 1, {0, 0, 1}), std::invalid_argument);
  CHECK_THROWS_AS(PingPong({0, 2}, 1, {0, 2, 1}), std::invalid_argument);
  CHECK_THROWS_AS(PingPong({0, 2}, 1, {-1, 1, 1}), std::invalid_argument);
  CHECK_THROWS_WITH_AS(PingPong({0, 2}, 1, {0, 1, 0}), "no pair of the 2 ranks, and rounds: 0, 1, 0",
                       std::invalid_argument);
}
