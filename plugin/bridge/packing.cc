#include "bridge/packing.h"

#include <utility>

namespace horovod {
namespace paceline {

namespace {

// In a buffer on a GPU every tensor begins at a multiple of this.
constexpr int64_t kPadding_bytes = 16;

bool OneMessage(const common::Response& one, const common::Response& other) {
  return one.devices() == other.devices() && one.tensor_type() == other.tensor_type() &&
         one.reduce_op() == other.reduce_op() && one.prescale_factor() == other.prescale_factor() &&
         one.postscale_factor() == other.postscale_factor();
}

}  // namespace

int64_t PaddedBytes(int64_t bytes) { return (bytes + kPadding_bytes - 1) / kPadding_bytes * kPadding_bytes; }

int64_t BytesOf(const common::Response& response, size_t tensor) {
  return response.tensor_sizes()[tensor] * static_cast<int64_t>(common::DataType_Size(response.tensor_type()));
}

void Pack(common::ResponseList& list, common::Controller& controller, std::vector<common::Response> group) {
  const int64_t limit_bytes = controller.TensorFusionThresholdBytes();
  std::vector<bool> added(group.size(), false);
  for (size_t first = 0; first < group.size(); ++first) {
    if (added[first]) {
      continue;
    }
    common::Response message = group[first];
    int64_t bytes = PaddedBytes(BytesOf(message, 0));
    for (size_t next = first + 1; next < group.size(); ++next) {
      const int64_t more_bytes = PaddedBytes(BytesOf(group[next], 0));
      if (!added[next] && OneMessage(message, group[next]) && bytes + more_bytes <= limit_bytes) {
        message.add_tensor_name(group[next].tensor_names()[0]);
        message.add_tensor_size(group[next].tensor_sizes()[0]);
        bytes += more_bytes;
        added[next] = true;
      }
    }
    list.add_response(std::move(message));
  }
}

}  // namespace paceline
}  // namespace horovod
