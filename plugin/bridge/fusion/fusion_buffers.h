// How large Horovod's fusion buffers are: large enough for the message that is about to be performed, whatever plans
// say.

#ifndef PACELINE_BRIDGE_FUSION_FUSION_BUFFERS_H
#define PACELINE_BRIDGE_FUSION_FUSION_BUFFERS_H

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "horovod/common/common.h"
#include "horovod/common/controller.h"
#include "horovod/common/message.h"

namespace horovod {
namespace paceline {

// Horovod copies a message into its buffer without looking at the buffer's size. Its own messages are within its limit,
// HOROVOD_FUSION_THRESHOLD, which it gives its buffers; messages of a plan may be larger. So a buffer grows with the
// messages that go through it, on each rank by itself. It shrinks in a new world only: making one takes time.
// Background thread only.
class FusionBuffers {
 public:
  // A new world.
  void Reset() { given_bytes_.clear(); }

  // The size of the buffer for these entries of one message, where Horovod's own choice is `own_bytes`. `stream`: what
  // Horovod tells buffers of one device and framework apart by.
  int64_t Bytes(int64_t own_bytes, const common::Response& response,
                const std::vector<common::TensorTableEntry>& entries, common::Controller& controller, int stream);

 private:
  std::map<std::tuple<int, common::Framework, int>, int64_t> given_bytes_;
};

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_FUSION_FUSION_BUFFERS_H
