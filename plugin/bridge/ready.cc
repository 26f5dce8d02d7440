#include "bridge/ready.h"

#include <chrono>

#include "core/waiting.h"
#include "horovod/common/operations.h"

namespace horovod::paceline {

namespace {

// The copy stands behind all that the device has to compute before, for itself and, with collectives of other
// libraries, for others.
constexpr std::chrono::seconds kLimit{600};

}  // namespace

common::Status WaitReady(const common::ReadyEventList& events, const std::string& what) {
  if (events.size() == 0 || ::paceline::core::WaitUntil([&] { return events.Ready(); }, kLimit)) {
    return common::Status::OK();
  }
  return common::Status::InvalidArgument(
      what + ": rank " + std::to_string(common::horovod_rank()) + " expected its copy from the GPU to CPU memory to " +
      "be done within " + std::to_string(kLimit.count()) +
      " s, found it under way. Look for what keeps that GPU busy, such as a collective of another library that not all "
      "ranks have called.");
}

}  // namespace horovod::paceline
