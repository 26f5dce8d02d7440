// Which tensors go in one message, within what a message can hold.

#ifndef PACELINE_CORE_FUSION_MESSAGE_PACKING_H
#define PACELINE_CORE_FUSION_MESSAGE_PACKING_H

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace paceline::core {

// Elements are counted by int where Horovod hands a message to Gloo or MPI. What is left over is for GPU operations,
// which round their number up.
inline constexpr int64_t kMostElements = 2'147'483'648 - 1'048'576;

// What `bytes` of a tensor take in the buffer of a message: in one on a GPU every tensor begins at a multiple of 16.
constexpr int64_t PaddedBytes(int64_t bytes) { return (bytes + 15) / 16 * 16; }

struct PackedTensor {
  int64_t bytes = 0;  // that it takes in the buffer of a message
  int64_t elements = 0;
  int32_t kind = 0;  // only tensors of one kind (data type, device, operation) can share a message
};

struct MessageLimits {
  int64_t bytes = 0;
  int64_t elements = kMostElements;
  int64_t alone_bytes = std::numeric_limits<int64_t>::max();  // a tensor of this size or larger goes alone
};

// Indices of `tensors`, by message: every tensor, in the given order, goes into the first message of its kind where it
// fits. One that is larger than a limit goes alone. The same arguments give the same messages.
std::vector<std::vector<size_t>> PackMessages(const std::vector<PackedTensor>& tensors, const MessageLimits& limits);

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_MESSAGE_PACKING_H
