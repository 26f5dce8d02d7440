#include "core/collectives/measured_network.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>

#include "core/arguments.h"

namespace paceline::core {

namespace {

constexpr auto kLinear = static_cast<int32_t>(AllreduceMethod::kLinear);

void CheckKnown(const MeasuredTime& time) {
  const auto most = time.operation == Operation::kAllreduce ? kAllreduceMethods - 1 : kLinear;
  const auto known = time.operation == Operation::kAllreduce || time.operation == Operation::kBroadcast;
  if (!known || time.method < MeasuredNetwork::kStock || time.method > most) {
    throw std::invalid_argument("operation " + std::to_string(static_cast<int32_t>(time.operation)) + " by method " +
                                std::to_string(time.method) + " is not known");
  }
}

}  // namespace

MeasuredNetwork::MeasuredNetwork(int32_t ranks, const Network& network, int64_t block_bytes,
                                 const std::vector<MeasuredTime>& times)
    : ranks_(ranks), network_(network), block_bytes_(block_bytes) {
  if (ranks < 2 || block_bytes < 0) {
    throw std::invalid_argument("a network is measured among at least two ranks and with blocks of some bytes, not " +
                                std::to_string(ranks) + " and " + std::to_string(block_bytes));
  }
  RequireNotNegative("the start-up of a message", network.alpha_s);
  RequireNotNegative("the time of a byte", network.beta_s_per_byte);
  for (const auto& time : times) {
    CheckKnown(time);
    RequireNotNegative("the size of a message", time.bytes);
    RequireNotNegative("the time of a message", time.seconds);
    if (time.bytes > 0) {
      auto& curve = curves_[{time.operation, time.method}];
      const auto at = curve.emplace(time.bytes, time.seconds).first;
      at->second = std::min(at->second, time.seconds);
    }
  }
}

double MeasuredNetwork::BlockBytes(Operation operation, int32_t method) const {
  if (block_bytes_ > 0) {
    return static_cast<double>(block_bytes_);
  }
  return static_cast<double>(operation == Operation::kBroadcast
                                 ? kOneWayBlockBytes
                                 : UsualBlockBytes(static_cast<AllreduceMethod>(method), ranks_));
}

double MeasuredNetwork::Predicted(Operation operation, int32_t method, double bytes) const {
  if (operation == Operation::kBroadcast && method == kStock) {
    return TreeBroadcastTime(network_, ranks_, bytes);
  }
  const auto known = method == kStock ? AllreduceMethod::kRing : static_cast<AllreduceMethod>(method);
  const BlockedBytes message{bytes, BlockBytes(operation, static_cast<int32_t>(known)), BlockedMessage{}.ahead};
  return operation == Operation::kBroadcast ? LinearBroadcastTime(network_, ranks_, message)
                                            : AllreduceTime(known, network_, ranks_, message);
}

double MeasuredNetwork::Seconds(Operation operation, int32_t method, double bytes) const {
  const auto found = curves_.find({operation, method});
  if (found == curves_.end()) {
    return Predicted(operation, method, bytes);
  }
  const auto& curve = found->second;
  const auto above = curve.lower_bound(bytes);
  if (above != curve.end() && (above->first == bytes || above != curve.begin())) {
    if (above->first == bytes) {
      return above->second;
    }
    const auto below = std::prev(above);
    const auto share = (bytes - below->first) / (above->first - below->first);
    return below->second + share * (above->second - below->second);
  }
  const auto& edge = above == curve.end() ? *curve.rbegin() : *above;
  const auto of_edge = Predicted(operation, method, edge.first);
  return of_edge > 0 ? edge.second * (Predicted(operation, method, bytes) / of_edge) : edge.second;
}

TimedChoice MeasuredNetwork::Allreduce(AllreduceMethod method, double bytes) const {
  const auto number = static_cast<int32_t>(method);
  return {method, BlockBytes(Operation::kAllreduce, number), Seconds(Operation::kAllreduce, number, bytes)};
}

int32_t MeasuredNetwork::Fastest(Operation operation, double bytes) const {
  auto fastest = kLinear;
  auto least_s = Seconds(operation, fastest, bytes);
  const auto methods = operation == Operation::kAllreduce ? kAllreduceMethods : 1;
  for (int32_t method = 1; method < methods; ++method) {
    const auto seconds = Seconds(operation, method, bytes);
    if (seconds < least_s) {
      fastest = method;
      least_s = seconds;
    }
  }
  const auto measured = curves_.count({operation, kStock}) > 0;
  return measured && Seconds(operation, kStock, bytes) < least_s ? kStock : fastest;
}

}  // namespace paceline::core
