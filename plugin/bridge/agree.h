// What ranks agree on in the thread of a caller, for a limited time: the least and the largest of their numbers.

#ifndef PACELINE_BRIDGE_AGREE_H
#define PACELINE_BRIDGE_AGREE_H

#include <cstdint>
#include <string>
#include <vector>

#include "horovod/common/common.h"

namespace horovod::paceline {

struct MinMax {
  common::Status status;
  std::vector<int64_t> least, most;  // over the ranks, number by number
};

// All ranks of the process set call this under one name, with equally many numbers (below 2^53 in amount).
MinMax AgreeMinMax(const std::string& name, int32_t process_set_id, const std::vector<int64_t>& values, double limit_s);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_AGREE_H
