// Several tensors in one message.

#ifndef PACELINE_BRIDGE_PACKING_H
#define PACELINE_BRIDGE_PACKING_H

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "horovod/common/controller.h"
#include "horovod/common/message.h"

namespace horovod::paceline {

// A tensor of this size or larger is reduced in place where its exchange saves memory: copying it to and from a fusion
// buffer takes longer than a message of its own, and the buffer costs memory.
inline constexpr int64_t kAlone_bytes = 16'777'216;

int64_t BytesOf(const common::Response& response, size_t tensor);

// How large messages may be in bytes, and from which size on a tensor goes alone.
struct PackLimits {
  int64_t bytes;
  int64_t alone_bytes = std::numeric_limits<int64_t>::max();
};

// Adds `group`, responses of one tensor each, to `list`: as few messages as their types and `limits` allow.
void Pack(common::ResponseList& list, const PackLimits& limits, std::vector<common::Response> group);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PACKING_H
