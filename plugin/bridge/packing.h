// Several tensors in one message.

#ifndef PACELINE_BRIDGE_PACKING_H
#define PACELINE_BRIDGE_PACKING_H

#include <cstddef>
#include <cstdint>
#include <vector>

#include "horovod/common/controller.h"
#include "horovod/common/message.h"

namespace horovod::paceline {

int64_t BytesOf(const common::Response& response, size_t tensor);

// Adds `group`, responses of one tensor each, to `list`: as few messages of at most `limit_bytes` as their types allow.
void Pack(common::ResponseList& list, int64_t limit_bytes, std::vector<common::Response> group);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PACKING_H
