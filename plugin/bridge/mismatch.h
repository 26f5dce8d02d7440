// Addition to Horovod's error about requests of one tensor that differ: Horovod's text names no rank.

#ifndef PACELINE_BRIDGE_MISMATCH_H
#define PACELINE_BRIDGE_MISMATCH_H

#include <string>
#include <vector>

#include "horovod/common/message.h"

namespace horovod::paceline {

// A sentence with the tensor, and with the operation, type and shape that each rank submitted. `global_ranks`: by rank
// of the process set.
std::string SubmittedByRank(const std::vector<common::Request>& requests, const std::vector<int>& global_ranks);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_MISMATCH_H
