// Processes that a rank forks: the background thread and the connections are the rank's, so no operation ends there.

#ifndef PACELINE_BRIDGE_FAILURE_FORKED_H
#define PACELINE_BRIDGE_FAILURE_FORKED_H

#include <string>

#include "horovod/common/common.h"

namespace horovod::paceline {

// A new world begins in this process.
void RememberProcess();
// Empty in the process whose world this is.
std::string WhyForked();
// An error in a forked process.
common::Status CheckProcess();

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_FAILURE_FORKED_H
