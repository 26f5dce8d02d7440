#include "bridge/fusion/fusion_buffers.h"

#include <algorithm>

#include "core/fusion/message_packing.h"

namespace horovod::paceline {

namespace {

// Hierarchical operations on GPUs round the number of elements up to a multiple of this many for each rank of a host.
constexpr int64_t kUnit_bytes = FUSION_BUFFER_ATOMIC_UNIT * int64_t{sizeof(double)};

}  // namespace

int64_t FusionBuffers::BufferBytes(int64_t bytes, const MessageInBuffer& message) {
  int64_t needed_bytes = 0;
  if (message.response.response_type() == common::Response::ALLREDUCE) {
    for (const auto& entry : message.entries) {
      needed_bytes += ::paceline::core::PaddedBytes(static_cast<int64_t>(entry.tensor->size()));
    }
    const int64_t unit_bytes = kUnit_bytes * std::max(message.controller.GetLocalSize(), 1);
    needed_bytes = (needed_bytes + unit_bytes - 1) / unit_bytes * unit_bytes;
  }
  const auto& first = message.entries[0];
  int64_t& given_bytes = given_bytes_[{first.device, first.context->framework(), message.stream}];
  given_bytes = std::max({given_bytes, bytes, needed_bytes});
  return given_bytes;
}

}  // namespace horovod::paceline
