// Direct allreduce and its halves: every shard goes to its owner at once, and back.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/collectives/algorithms.h"
#include "core/collectives/schedule_builder.h"

namespace paceline::core {

namespace {

using Shards = std::vector<ScheduleBuilder::Ranges>;

int32_t At(int32_t rank, int32_t ranks) { return (rank + ranks) % ranks; }

// In turn t = 1 ... p - 1 rank i sends to i + t and receives from i - t, so that no two ranks send to the same one.
//
// Operands meet as ((0 + 1) + 2) + ..., so that it does not matter to an element's bits in which shard it is, and so
// what else was in its message. Rank 0's segment is received into the result; the owner's own is put aside for its
// turn. That makes p - 1 scratch blocks for a segment, those of the other ranks but 0 and the owner's; twice, so that
// the next segment arrives while one is combined.
//
// Returns the number of the last send; -1: there is none.
int32_t Scatter(ScheduleBuilder& builder, Place place, const Shards& shards) {
  const int32_t p = place.ranks, i = place.rank;
  const auto shard = [&](int32_t number) -> const auto& { return shards[static_cast<std::size_t>(number)]; };
  const auto& own = shard(i);
  int32_t last_out = -1;
  for (std::size_t k = 0; k < shard(0).size(); ++k) {  // the largest shard
    const auto scratch_of = [&](int32_t rank) { return static_cast<int32_t>(k % 2) * (p - 1) + rank - 1; };
    if (k < own.size() && i > 0) {
      builder.Copy(own[k], scratch_of(i));
    }
    for (int32_t t = 1; t < p; ++t) {
      const int32_t sender = At(i - t, p), owner = At(i + t, p);
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
  return last_out;
}

// The same turns. Sends come after the operation `earlier`; -1: after none.
void Gather(ScheduleBuilder& builder, Place place, const Shards& shards, int32_t earlier) {
  const int32_t p = place.ranks, i = place.rank;
  const auto shard = [&](int32_t number) -> const auto& { return shards[static_cast<std::size_t>(number)]; };
  const auto& own = shard(i);
  for (std::size_t k = 0; k < shard(0).size(); ++k) {
    for (int32_t t = 1; t < p; ++t) {
      const int32_t owner = At(i - t, p);
      if (k < own.size()) {
        builder.SendAdopted(own[k], At(i + t, p));
        builder.After(earlier);
      }
      if (k < shard(owner).size()) {
        builder.Receive(shard(owner)[k], owner);
      }
    }
  }
}

}  // namespace

// Results are held back until all that goes out has gone, or they would take the turns of others.
CollectiveSchedule DirectAllreduce(Place place, const BlockedMessage& message) {
  ScheduleBuilder builder(place, message);
  const auto shards = builder.Shards();
  const auto last_out = Scatter(builder, place, shards);
  Gather(builder, place, shards, last_out);
  return builder.Take();
}

CollectiveSchedule DirectReduceScatter(Place place, const BlockedMessage& message) {
  ScheduleBuilder builder(place, message);
  Scatter(builder, place, builder.Shards());
  return builder.Take();
}

CollectiveSchedule DirectAllGather(Place place, const BlockedMessage& message) {
  ScheduleBuilder builder(place, message);
  Gather(builder, place, builder.Shards(), -1);
  return builder.Take();
}

}  // namespace paceline::core
