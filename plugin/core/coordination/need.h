// What an operation that was just handed in needs of coordination rounds.

#ifndef PACELINE_CORE_COORDINATION_NEED_H
#define PACELINE_CORE_COORDINATION_NEED_H

#include <cstdint>

namespace paceline::core {

enum class Need : uint8_t {
  kRound,   // one that takes it up
  kOthers,  // one, but not before others have come that go with it
  kNone,    // none: what was handed in before brings it about
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_COORDINATION_NEED_H
