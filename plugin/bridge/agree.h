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

// A message to and fro between two ranks of the process set, so many times.
struct PingPair {
  int32_t first, second, rounds;
};
struct PingTime {
  common::Status status;
  double seconds = 0;  // of one message one way; on `first`
};
// All ranks of the process set call it, where our own transport reaches them.
PingTime Ping(int32_t process_set_id, const PingPair& pair, int64_t bytes, double limit_s);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_AGREE_H
