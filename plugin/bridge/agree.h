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

// In amount: with this added to them they are exact in float64, and above 0.
constexpr int64_t kAgreedBelow = 0x10000000000000;  // 2^52

// All ranks of the process set that have not joined call this under one name, with equally many numbers.
MinMax AgreeMinMax(const std::string& name, int32_t process_set_id, const std::vector<int64_t>& values, double limit_s);

// Whether all ranks gave the same, where the two values sent for one number have become these.
inline bool AllSame(double most, double least) { return most - kAgreedBelow == kAgreedBelow - least; }

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
