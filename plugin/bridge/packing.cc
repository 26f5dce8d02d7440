#include "bridge/packing.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/fusion/message_packing.h"

namespace horovod::paceline {

namespace {

bool OneMessage(const common::Response& one, const common::Response& other) {
  return one.devices() == other.devices() && one.tensor_type() == other.tensor_type() &&
         one.reduce_op() == other.reduce_op() && one.prescale_factor() == other.prescale_factor() &&
         one.postscale_factor() == other.postscale_factor();
}

}  // namespace

int64_t BytesOf(const common::Response& response, size_t tensor) {
  return response.tensor_sizes()[tensor] * static_cast<int64_t>(common::DataType_Size(response.tensor_type()));
}

void Pack(common::ResponseList& list, const PackLimits& limits, std::vector<common::Response> group) {
  std::vector<::paceline::core::PackedTensor> tensors;
  tensors.reserve(group.size());
  for (const auto& response : group) {
    const auto like =
        std::find_if(group.begin(), group.end(), [&](const auto& one) { return OneMessage(one, response); });
    tensors.push_back({::paceline::core::PaddedBytes(BytesOf(response, 0)), response.tensor_sizes()[0],
                       static_cast<int32_t>(std::distance(group.begin(), like))});
  }
  for (const auto& message :
       PackMessages(tensors, {limits.bytes, ::paceline::core::kMostElements, limits.alone_bytes})) {
    auto& first = group[message[0]];
    for (size_t n = 1; n < message.size(); ++n) {
      first.add_tensor_name(group[message[n]].tensor_names()[0]);
      first.add_tensor_size(group[message[n]].tensor_sizes()[0]);
    }
    list.add_response(std::move(first));
  }
}

}  // namespace horovod::paceline
