#include "core/fusion/message_packing.h"

#include <algorithm>
#include <utility>

namespace paceline::core {

namespace {

struct Filled {
  PackedTensor sum;
  bool closed = false;  // its tensor goes alone
  std::vector<size_t> tensors;
};

}  // namespace

std::vector<std::vector<size_t>> PackMessages(const std::vector<PackedTensor>& tensors, const MessageLimits& limits) {
  std::vector<Filled> messages;
  for (size_t n = 0; n < tensors.size(); ++n) {
    const auto& tensor = tensors[n];
    const bool alone = tensor.bytes >= limits.alone_bytes;
    const auto takes = [&](const Filled& message) {
      return !alone && !message.closed && message.sum.kind == tensor.kind &&
             message.sum.bytes + tensor.bytes <= limits.bytes &&
             message.sum.elements + tensor.elements <= limits.elements;
    };
    auto message = std::find_if(messages.begin(), messages.end(), takes);
    if (message == messages.end()) {
      message = messages.insert(messages.end(), Filled{{0, 0, tensor.kind}, alone, {}});
    }
    message->sum.bytes += tensor.bytes;
    message->sum.elements += tensor.elements;
    message->tensors.push_back(n);
  }
  std::vector<std::vector<size_t>> packed;
  packed.reserve(messages.size());
  for (auto& message : messages) {
    packed.push_back(std::move(message.tensors));
  }
  return packed;
}

}  // namespace paceline::core
