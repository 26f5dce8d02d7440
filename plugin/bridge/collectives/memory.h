// Memory of messages.

#ifndef PACELINE_BRIDGE_COLLECTIVES_MEMORY_H
#define PACELINE_BRIDGE_COLLECTIVES_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace horovod::paceline {

// All of it is written before it is read, so nothing fills it with zeros: as a vector would, and touch every page.
using Memory = std::unique_ptr<uint8_t[]>;  // NOLINT(modernize-avoid-c-arrays)

// A part of memory that somebody else keeps; given back when it ends.
using Room = std::unique_ptr<uint8_t, std::function<void(uint8_t*)>>;

// Throws std::bad_alloc.
inline Memory MakeMemory(int64_t bytes) { return Memory(new uint8_t[static_cast<size_t>(bytes)]); }

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_MEMORY_H
