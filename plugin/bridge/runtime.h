// Paceline's state inside one of Horovod's libraries. PyTorch's and TensorFlow's library each have their own.

#ifndef PACELINE_BRIDGE_RUNTIME_H
#define PACELINE_BRIDGE_RUNTIME_H

#include <chrono>
#include <cstdint>

#include "core/automatic_names.h"
#include "core/recorder.h"

namespace horovod {
namespace paceline {

struct Runtime {
  ::paceline::core::Recorder recorder;
  ::paceline::core::AutomaticNames automatic_names;
};

// Never destroyed: Horovod's background thread may outlive static destructors.
Runtime& GetRuntime();

inline int64_t Nanoseconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_RUNTIME_H
