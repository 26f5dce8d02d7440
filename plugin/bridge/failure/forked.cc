#include "bridge/failure/forked.h"

#include <unistd.h>

#include <atomic>

#include "horovod/common/operations.h"

namespace horovod::paceline {

namespace {

std::atomic<pid_t> process_of_world{0};  // 0: none yet

}  // namespace

void RememberProcess() { process_of_world = ::getpid(); }

std::string WhyForked() {
  const pid_t owner = process_of_world, own = ::getpid();
  if (owner == 0 || owner == own) {
    return "";
  }
  return "Process " + std::to_string(own) + " was forked from rank " + std::to_string(common::horovod_rank()) +
         ", process " + std::to_string(owner) +
         ", after hvd.init(): it has no connections to other ranks. Call operations of Horovod in the rank's own "
         "process; a process that loads data may call hvd.rank() and hvd.size().";
}

common::Status CheckProcess() {
  const auto why = WhyForked();
  return why.empty() ? common::Status::OK() : common::Status::PreconditionError(why);
}

}  // namespace horovod::paceline
