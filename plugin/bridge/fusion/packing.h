// Several tensors in one message.

#ifndef PACELINE_BRIDGE_FUSION_PACKING_H
#define PACELINE_BRIDGE_FUSION_PACKING_H

#include <cstdint>
#include <string>
#include <vector>

#include "horovod/common/controller.h"
#include "horovod/common/message.h"

namespace horovod {
namespace paceline {

// Tensors that a plan has go in one message, and how long one may wait for the others.
struct MergeGroup {
  std::vector<std::string> names;
  int64_t patience_ns = 0;
};

// What `bytes` of a tensor take in the buffer of a message.
int64_t PaddedBytes(int64_t bytes);
int64_t BytesOf(const common::Response& response, size_t tensor);

// Adds `group`, responses of one tensor each, to `list`: as few messages as their types allow, and what the current
// process set's plan, or else Horovod, lets a message hold.
void Pack(common::ResponseList& list, common::Controller& controller, std::vector<common::Response> group);

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_FUSION_PACKING_H
