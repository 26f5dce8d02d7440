// A message that goes back and forth between two ranks: what measures their connection.

#ifndef PACELINE_CORE_COLLECTIVES_PING_H
#define PACELINE_CORE_COLLECTIVES_PING_H

#include <cstdint>

#include "core/collectives/schedule.h"

namespace paceline::core {

struct Pair {
  int32_t first = 0, second = 1;  // different ranks
  int32_t rounds = 1;             // there and back, at least one
};

// The whole message at once. The other ranks have nothing to do. Throws std::invalid_argument as in algorithms.h.
CollectiveSchedule PingPong(Place place, int64_t elements, const Pair& pair);

}  // namespace paceline::core

#endif  // PACELINE_CORE_COLLECTIVES_PING_H
