// What collectives took on a network when they were measured there, and what follows for messages of other sizes.

#ifndef PACELINE_CORE_COLLECTIVES_MEASURED_NETWORK_H
#define PACELINE_CORE_COLLECTIVES_MEASURED_NETWORK_H

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/collectives/algorithms.h"
#include "core/collectives/collective_time.h"

namespace paceline::core {

enum class Operation : int32_t { kBroadcast, kAllreduce };

// What a message of so many bytes took. `method`: an AllreduceMethod (of broadcasts: kLinear, whatever the choice), or
// MeasuredNetwork::kStock.
struct MeasuredTime {
  Operation operation = Operation::kAllreduce;
  int32_t method = 0;
  double bytes = 0;
  double seconds = 0;
};

class MeasuredNetwork {
 public:
  static constexpr int32_t kStock = -1;  // stock Horovod's collective: a ring, or a tree

  // Where `block_bytes` is 0, collectives were measured with UsualBlockBytes. Throws std::invalid_argument for fewer
  // than two ranks, an operation or method that is not known, and numbers that are not finite or are negative; messages
  // without bytes say nothing and are left out.
  MeasuredNetwork(int32_t ranks, const Network& network, int64_t block_bytes, const std::vector<MeasuredTime>& times);

  int32_t ranks() const { return ranks_; }

  // Our own, of `bytes` above 0. Between two measured sizes on the line that joins them; beyond, what collective_time.h
  // predicts, as much longer or shorter as the nearest measured message took. A method that was not measured takes what
  // is predicted.
  TimedChoice Allreduce(AllreduceMethod method, double bytes) const;
  // The fastest: an AllreduceMethod, or kStock if that was measured and is faster than all others. Comparisons are made
  // with sums, products and quotients alone, so that all machines with one build of this library come to the same.
  int32_t Fastest(Operation operation, double bytes) const;

 private:
  using Curve = std::map<double, double>;  // bytes -> the least seconds

  double Seconds(Operation operation, int32_t method, double bytes) const;
  double Predicted(Operation operation, int32_t method, double bytes) const;
  double BlockBytes(Operation operation, int32_t method) const;

  int32_t ranks_;
  Network network_;
  int64_t block_bytes_;
  std::map<std::pair<Operation, int32_t>, Curve> curves_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_COLLECTIVES_MEASURED_NETWORK_H
