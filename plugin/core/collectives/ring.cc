// Ring allreduce: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
// 2009.

#include <cstdint>

#include "core/collectives/algorithms.h"
#include "core/collectives/schedule_builder.h"

namespace paceline::core {

// Step s of p - 1: rank i receives the partial sum of shard i - s - 1 from the rank before it, adds its own and sends
// it on in step s + 1. After the last step it has all of shard i + 1, which goes round once more; rank i receives shard
// i - s in step s of that.
//
// A few scratch blocks, two or more, are enough for any number of segments: with two, receive t waits for combine t -
// 2, so for receive t - 2 of this rank and a combine with a lower number on the rank before it, and so on: never for
// something with the same number.
CollectiveSchedule RingAllreduce(Place place, const BlockedMessage& message) {
  ScheduleBuilder builder(place, message);
  const auto shards = builder.Shards();
  const int32_t p = place.ranks, i = place.rank;
  const auto shard = [&](int32_t number) -> const auto& { return shards[static_cast<std::size_t>((number + p) % p)]; };
  const int32_t previous = (i + p - 1) % p, next = (i + 1) % p;
  if (p == 1) {
    return builder.Take();
  }
  for (const auto& segment : shard(i)) {
    builder.Send(segment, next);
  }
  int32_t received = 0;
  for (int32_t s = 0; s < p - 1; ++s) {
    for (const auto& segment : shard(i - s - 1)) {
      const int32_t scratch = received++ % message.scratch;
      builder.ReceiveScratch(segment, previous, scratch);
      builder.Combine(segment, scratch, ScheduleBuilder::Left::kScratch);
      if (s < p - 2) {
        builder.Send(segment, next);
      } else {
        builder.SendAdopted(segment, next);
      }
    }
  }
  for (int32_t s = 0; s < p - 1; ++s) {
    for (const auto& segment : shard(i - s)) {
      builder.Receive(segment, previous);
      if (s < p - 2) {
        builder.SendAdopted(segment, next);
      }
    }
  }
  return builder.Take();
}

}  // namespace paceline::core
