// How large Horovod's fusion buffers are: large enough for the message that is about to be performed, whatever plans
// say.

#ifndef PACELINE_BRIDGE_FUSION_FUSION_BUFFERS_H
#define PACELINE_BRIDGE_FUSION_FUSION_BUFFERS_H

#include <cstdint>
#include <map>
#include <tuple>

#include "bridge/participant.h"

namespace horovod::paceline {

// Horovod copies a message into its buffer without looking at the buffer's size. Its own messages are within its limit,
// HOROVOD_FUSION_THRESHOLD, which it gives its buffers; messages of a plan may be larger. So a buffer grows with the
// messages that go through it, on each rank by itself. It shrinks in a new world only: making one takes time.
class FusionBuffers : public Participant {
 public:
  void BeginWorld() override { given_bytes_.clear(); }
  int64_t BufferBytes(int64_t bytes, const MessageInBuffer& message) override;

 private:
  std::map<std::tuple<int, common::Framework, int>, int64_t> given_bytes_;  // by device, framework and stream
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_FUSION_FUSION_BUFFERS_H
