// The number of what Python and Horovod's library say to each other.

#ifndef PACELINE_CORE_INTERFACE_H
#define PACELINE_CORE_INTERFACE_H

#include <cstdint>

namespace paceline::core {

// Raised whenever entry points of the bridge (plugin/native/prototypes.py) or hooks change their meaning. Python reads
// its own from `_core`, the library was built with another copy of this file.
constexpr int32_t kInterface = 11;

}  // namespace paceline::core

#endif  // PACELINE_CORE_INTERFACE_H
