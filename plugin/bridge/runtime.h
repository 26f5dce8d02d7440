// Paceline's state inside one of Horovod's libraries. PyTorch's and TensorFlow's library each have their own.

#ifndef PACELINE_BRIDGE_RUNTIME_H
#define PACELINE_BRIDGE_RUNTIME_H

#include "bridge/fusion/fusion_buffers.h"
#include "bridge/fusion/mergers.h"
#include "bridge/partial/partials.h"
#include "bridge/pipelined/channel.h"
#include "core/automatic_names.h"
#include "core/record/recorder.h"

namespace horovod {
namespace paceline {

struct Runtime {
  ::paceline::core::Recorder recorder;
  ::paceline::core::AutomaticNames automatic_names;
  Mergers mergers;
  FusionBuffers fusion_buffers;
  Channels channels;
  Partials partials;
  int32_t process_set_id = 0;  // whose coordination round is running; the background thread's
};

// Never destroyed: Horovod's background thread may outlive static destructors.
Runtime& GetRuntime();

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_RUNTIME_H
