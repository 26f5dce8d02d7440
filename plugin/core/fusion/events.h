// What merging hears of, by whether all ranks hear of it alike.
//
// Ranks must hold some things alike: numbers of tensors, whether tensors are watched, the plan, how messages are sent.
// Functions that change these take an agreed event, so that they cannot be called where a local one is all there is.
//
//   namespace   event          order
//   agreed      MessageBegun   that of the messages of rounds, the same on all ranks
//               RoundEnded     after all messages of a round have ended, before any of the next one begins
//   local       Arrival        as this rank's program submits tensors
//               MessageEnded   as results come: messages in flight together end in an order of each rank's own

#ifndef PACELINE_CORE_FUSION_EVENTS_H
#define PACELINE_CORE_FUSION_EVENTS_H

#include <cstdint>
#include <string>
#include <vector>

namespace paceline::core {

// A tensor that is reduced by itself or as part of a message.
struct ReducedTensor {
  std::string name;
  int64_t bytes = 0;
  int32_t type = 0;  // tensors of different types cannot share a message
};

namespace agreed {

struct MessageBegun {
  std::vector<ReducedTensor> tensors;
};

struct RoundEnded {};

}  // namespace agreed

// Times are nanoseconds of one steady clock.
namespace local {

struct Arrival {
  std::string name;
  int64_t at_ns = 0;
};

struct MessageEnded {
  std::vector<std::string> names;  // of its tensors
  int64_t start_ns = 0, end_ns = 0;
};

}  // namespace local

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_EVENTS_H
