// Linear Pipelining: Wang et al., "Efficient Communications in Training Large Scale Neural Networks", ACM MM Workshops
// 2017, arXiv 1611.04255. Where we differ: the paper's chain is 0, 1, ... p - 1; ours is turned so that it ends at the
// root.

#include <cstddef>
#include <stdexcept>
#include <string>

#include "core/collectives/algorithms.h"
#include "core/collectives/schedule_builder.h"

namespace paceline::core {

namespace {

// Towards the root, back from it, or both.
enum class Ways { kReduce, kBroadcast, kBoth };

CollectiveSchedule Linear(Place place, const BlockedMessage& message, int32_t root, Ways ways) {
  ScheduleBuilder builder(place, message);
  if (root < 0 || root >= place.ranks) {
    throw std::invalid_argument("root " + std::to_string(root) + " is not among the " + std::to_string(place.ranks) +
                                " ranks of the collective, counted from 0");
  }
  const bool first = (root + 1) % place.ranks == place.rank, last = root == place.rank;
  const int32_t previous = (place.rank + place.ranks - 1) % place.ranks, next = (place.rank + 1) % place.ranks;
  const auto blocks = builder.Blocks(0, message.elements);
  for (std::size_t k = 0; k < blocks.size(); ++k) {
    // One is combined while the others are filled.
    const auto scratch = static_cast<int32_t>(k % static_cast<std::size_t>(message.scratch));
    if (ways == Ways::kReduce && !first && !last) {
      // What goes on to the root is nobody else's result.
      builder.ReceiveScratch(blocks[k], previous, scratch);
      builder.CombineAway(blocks[k], scratch, ScheduleBuilder::Left::kScratch);
      builder.SendScratch(blocks[k], next, scratch);
    } else if (ways != Ways::kBroadcast) {
      if (!first) {
        builder.ReceiveScratch(blocks[k], previous, scratch);
        builder.Combine(blocks[k], scratch, ScheduleBuilder::Left::kScratch);
      }
      if (!last) {
        builder.Send(blocks[k], next);
      }
    }
    if (ways != Ways::kReduce) {
      if (!last) {
        builder.Receive(blocks[k], next);
      }
      if (!first) {
        builder.SendAdopted(blocks[k], previous);
      }
    }
  }
  return builder.Take();
}

}  // namespace

CollectiveSchedule LinearBroadcast(Place place, const BlockedMessage& message, int32_t root) {
  return Linear(place, message, root, Ways::kBroadcast);
}

CollectiveSchedule LinearReduce(Place place, const BlockedMessage& message, int32_t root) {
  return Linear(place, message, root, Ways::kReduce);
}

CollectiveSchedule LinearAllreduce(Place place, const BlockedMessage& message, int32_t root) {
  return Linear(place, message, root, Ways::kBoth);
}

}  // namespace paceline::core
