// Ranks that wait for each other in the thread of a caller, for a limited time, and compare numbers.

#ifndef PACELINE_BRIDGE_MEETING_H
#define PACELINE_BRIDGE_MEETING_H

#include <cstdint>
#include <string>
#include <vector>

#include "horovod/common/common.h"

namespace horovod {
namespace paceline {

struct Met {
  common::Status status;
  std::vector<int64_t> least, most;  // over the ranks, number by number
};

// All ranks of the process set call this under one name, with equally many numbers (below 2^53 in amount).
Met Meet(const std::string& name, int32_t process_set_id, const std::vector<int64_t>& values, double limit_s);

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_MEETING_H
