#include <algorithm>
#include <string>
#include <vector>

#include "collectives/cases.h"
#include "collectives/wire.h"
#include "core/collectives/algorithms.h"
#include "doctest/doctest.h"

using namespace collectives;
using paceline::core::RingAllreduce;

namespace {

CollectiveSchedule Ring(Place place, const BlockedMessage& message, int32_t /*root*/) {
  return RingAllreduce(place, message);
}

}  // namespace

TEST_CASE("a ring allreduce adds each shard around the ring, from its own rank on, with two blocks of scratch memory") {
  ForAllCases({"ring", false, Ring}, [](const auto& schedules, int32_t p, const auto& message, int32_t) {
    std::vector<std::string> expected;
    for (int32_t shard = 0; shard < p; ++shard) {
      const int64_t count = message.elements / p + (shard < message.elements % p ? 1 : 0);
      expected.insert(expected.end(), static_cast<size_t>(count), InTurn(shard, p));
    }
    for (const auto& values : Terms(schedules, message.elements)) {
      CHECK(values == expected);
    }
    for (const auto& schedule : schedules) {
      CHECK(schedule.scratch_blocks <= message.scratch);
      CHECK(schedule.scratch_count <= message.block);
    }
  });
}

TEST_CASE("a ring allreduce fills the wire: each rank sends without a pause, start-ups and combining hidden") {
  for (int32_t p = 2; p <= 8; ++p) {
    const int64_t segments = 10, n = p * segments;
    const auto schedules = OnAll(p, [&](Place place) { return RingAllreduce(place, {n, 1}); });
    CHECK(StepsOf(schedules, n) == 2.0 * (p - 1) * static_cast<double>(segments));
    Wire wire;
    wire.beta_s = 1;
    wire.gamma_s = 0.7;
    wire.latency_s = wire.notice_s = 0.1;
    const double sent_s = 2.0 * (p - 1) * static_cast<double>(segments);
    CHECK(SecondsOn(wire, schedules, n) <= sent_s + 2);
  }
}
