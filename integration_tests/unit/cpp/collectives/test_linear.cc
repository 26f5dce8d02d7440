#include <algorithm>
#include <string>
#include <vector>

#include "collectives/cases.h"
#include "collectives/wire.h"
#include "core/collectives/algorithms.h"
#include "doctest/doctest.h"

using namespace collectives;
using namespace paceline::core;

namespace {

int64_t Blocks(const BlockedMessage& message) { return (message.elements + message.block - 1) / message.block; }

}  // namespace

TEST_CASE("a linear broadcast gives everybody the root's values") {
  ForAllCases({"broadcast", true, LinearBroadcast},
              [](const auto& schedules, int32_t p, const auto& message, int32_t root) {
                const std::vector<std::string> expected(static_cast<size_t>(message.elements),
                                                        std::string(1, static_cast<char>('a' + root)));
                for (const auto& values : Terms(schedules, message.elements)) {
                  CHECK(values == expected);
                }
                for (const auto& schedule : schedules) {
                  CHECK(schedule.scratch_blocks == 0);
                }
                CHECK(static_cast<int32_t>(schedules.size()) == p);
              });
}

TEST_CASE("a linear reduce adds along the chain to the root; an allreduce has the same everywhere") {
  ForAllCases({"reduce", true, LinearReduce}, [](const auto& schedules, int32_t p, const auto& message, int32_t root) {
    const std::vector<std::string> expected(static_cast<size_t>(message.elements), InTurn((root + 1) % p, p));
    const auto all = Terms(schedules, message.elements);
    for (int32_t rank = 0; rank < p; ++rank) {  // the others keep what they brought
      const std::vector<std::string> own(expected.size(), std::string(1, static_cast<char>('a' + rank)));
      CHECK(all[static_cast<size_t>(rank)] == (rank == root ? expected : own));
    }
  });
  ForAllCases(
      {"allreduce", true, LinearAllreduce}, [](const auto& schedules, int32_t p, const auto& message, int32_t root) {
        const std::vector<std::string> expected(static_cast<size_t>(message.elements), InTurn((root + 1) % p, p));
        for (const auto& values : Terms(schedules, message.elements)) {
          CHECK(values == expected);
        }
      });
}

TEST_CASE("linear reduce and allreduce take so many blocks of scratch memory at most") {
  for (const auto& make : {LinearReduce, LinearAllreduce}) {
    ForAllCases({"linear", true, make}, [](const auto& schedules, int32_t, const auto& message, int32_t) {
      for (const auto& schedule : schedules) {
        CHECK(schedule.scratch_blocks <= message.scratch);
        CHECK(schedule.scratch_count <= std::min(message.block, message.elements));
      }
    });
  }
}

TEST_CASE("each way of a linear collective takes ceil(n/b) + p - 2 steps, and both overlap") {
  for (int32_t p = 2; p <= 8; ++p) {
    for (const int64_t n : {1, 12, 29, 100}) {
      for (const int64_t block : {1, 3, 4, 64}) {
        const BlockedMessage message{n, block};
        const auto steps = static_cast<double>(Blocks(message));
        const auto all = [&](const auto& make) {
          return OnAll(p, [&](Place place) { return make(place, message, p / 2); });
        };
        CAPTURE(p);
        CAPTURE(n);
        CAPTURE(block);
        CHECK(StepsOf(all(LinearBroadcast), n) == steps + p - 2);
        CHECK(StepsOf(all(LinearReduce), n) == steps + p - 2);
        // The way back begins when the root has the first block: p - 1 steps after the beginning of the way there.
        CHECK(StepsOf(all(LinearAllreduce), n, true) == steps + p - 2 + p - 1);
        // On one card for both neighbours, ranks within the chain send everything twice.
        const double on_cards = StepsOf(all(LinearAllreduce), n);
        CHECK(on_cards >= (p == 2 ? steps + 1 : 2 * steps));
        CHECK(on_cards <= (p == 2 ? steps + 1 : 2 * steps + 2 * p - 4));
      }
    }
  }
}
