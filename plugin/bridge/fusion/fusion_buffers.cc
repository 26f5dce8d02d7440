#include "bridge/fusion/fusion_buffers.h"

#include <algorithm>

#include "bridge/fusion/packing.h"

namespace horovod {
namespace paceline {

namespace {

// Hierarchical operations on GPUs round the number of elements up to a multiple of this many for each rank of a host.
constexpr int64_t kUnit_bytes = FUSION_BUFFER_ATOMIC_UNIT * int64_t{sizeof(double)};

}  // namespace

int64_t FusionBuffers::Bytes(int64_t own_bytes, const common::Response& response,
                             const std::vector<common::TensorTableEntry>& entries, common::Controller& controller,
                             int stream) {
  int64_t needed_bytes = 0;
  if (response.response_type() == common::Response::ALLREDUCE) {
    for (const auto& entry : entries) {
      needed_bytes += PaddedBytes(entry.tensor->size());
    }
    const int64_t unit_bytes = kUnit_bytes * std::max(controller.GetLocalSize(), 1);
    needed_bytes = (needed_bytes + unit_bytes - 1) / unit_bytes * unit_bytes;
  }
  const auto& first = entries[0];
  int64_t& given_bytes = given_bytes_[{first.device, first.context->framework(), stream}];
  given_bytes = std::max({given_bytes, own_bytes, needed_bytes});
  return given_bytes;
}

}  // namespace paceline
}  // namespace horovod
