// Tensors in CPU memory that are still being filled.

#ifndef PACELINE_BRIDGE_READY_H
#define PACELINE_BRIDGE_READY_H

#include <string>

#include "horovod/common/common.h"

namespace horovod::paceline {

// Waits until the tensor of these events can be read. Horovod without operations on GPUs copies such gradients to host
// memory while it hands them in, and says by an event when a copy is done; its own collectives wait for it before they
// read. An event needs nothing that its caller does later. An error, which says that `what` was waited for, if the
// limit passes.
common::Status WaitReady(const common::ReadyEventList& events, const std::string& what);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_READY_H
