// Direct allreduce: every shard goes to its owner at once, and back.

#include <cstddef>
#include <cstdint>

#include "core/collectives/algorithms.h"
#include "core/collectives/schedule_builder.h"

namespace paceline::core {

// In turn t = 1 ... p - 1 rank i sends to i + t and receives from i - t, so that no two ranks send to the same one.
// Results are held back until all that goes out has gone, or they would take the turns of others.
//
// Operands meet as ((0 + 1) + 2) + ..., so that it does not matter to an element's bits in which shard it is, and so
// what else was in its message. Rank 0's segment is received into the result; the owner's own is put aside for its
// turn. That makes p - 1 scratch blocks for a segment, those of the other ranks but 0 and the owner's; twice, so that
// the next segment arrives while one is combined.
CollectiveSchedule DirectAllreduce(Place place, const BlockedMessage& message) {
  ScheduleBuilder builder(place, message);
  const auto shards = builder.Shards();
  const int32_t p = place.ranks, i = place.rank;
  const auto at = [p](int32_t rank) { return (rank + p) % p; };
  const auto shard = [&](int32_t number) -> const auto& { return shards[static_cast<std::size_t>(number)]; };
  const auto& own = shard(i);
  int32_t last_out = -1;
  for (std::size_t k = 0; k < shard(0).size(); ++k) {  // the largest shard
    const auto scratch_of = [&](int32_t rank) { return static_cast<int32_t>(k % 2) * (p - 1) + rank - 1; };
    if (k < own.size() && i > 0) {
      builder.Copy(own[k], scratch_of(i));
    }
    for (int32_t t = 1; t < p; ++t) {
      const int32_t sender = at(i - t), owner = at(i + t);
      if (k < shard(owner).size()) {
        last_out = builder.Send(shard(owner)[k], owner);
      }
      if (k < own.size() && sender == 0) {
        builder.Receive(own[k], sender);
      } else if (k < own.size()) {
        builder.ReceiveScratch(own[k], sender, scratch_of(sender));
      }
    }
    for (int32_t rank = 1; k < own.size() && rank < p; ++rank) {
      builder.Combine(own[k], scratch_of(rank), ScheduleBuilder::Left::kResult);
    }
  }
  for (std::size_t k = 0; k < shard(0).size(); ++k) {
    for (int32_t t = 1; t < p; ++t) {
      const int32_t owner = at(i - t);
      if (k < own.size()) {
        builder.SendAdopted(own[k], at(i + t));
        builder.After(last_out);
      }
      if (k < shard(owner).size()) {
        builder.Receive(shard(owner)[k], owner);
      }
    }
  }
  return builder.Take();
}

}  // namespace paceline::core
