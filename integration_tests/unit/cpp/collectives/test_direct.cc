#include <algorithm>
#include <string>
#include <vector>

#include "collectives/cases.h"
#include "collectives/wire.h"
#include "core/collectives/algorithms.h"
#include "doctest/doctest.h"

using namespace collectives;
using paceline::core::DirectAllreduce;

namespace {

CollectiveSchedule Direct(Place place, const BlockedMessage& message, int32_t /*root*/) {
  return DirectAllreduce(place, message);
}

}  // namespace

TEST_CASE(
    "a direct allreduce adds in the order of ranks, whatever the shard, with 2 (p - 1) blocks of scratch memory") {
  ForAllCases({"direct", false, Direct}, [](const auto& schedules, int32_t p, const auto& message, int32_t) {
    const std::vector<std::string> expected(static_cast<size_t>(message.elements), InTurn(0, p));
    for (const auto& values : Terms(schedules, message.elements)) {
      CHECK(values == expected);
    }
    for (const auto& schedule : schedules) {
      CHECK(schedule.scratch_blocks <= 2 * (p - 1));
      CHECK(schedule.scratch_count <= message.block);
    }
  });
}

TEST_CASE("a direct allreduce has two start-ups, and no two ranks send to the same one at a time") {
  for (int32_t p = 2; p <= 8; ++p) {
    for (const int64_t segments : {1, 2, 7}) {
      const int64_t n = p * segments;
      const auto schedules = OnAll(p, [&](Place place) { return DirectAllreduce(place, {n, 1}); });
      Wire latency;
      latency.latency_s = latency.notice_s = 1;
      if (segments <= 2) {  // so many have room at once
        CHECK(SecondsOn(latency, schedules, n) == 2);
      }
      CHECK(StepsOf(schedules, n) == 2.0 * (p - 1) * static_cast<double>(segments));
    }
  }
}
