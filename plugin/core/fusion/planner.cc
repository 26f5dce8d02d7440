#include "core/fusion/planner.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>

#include "core/arguments.h"

namespace paceline::core {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

constexpr NameTable<Policy, 5> kPolicies{{
    {"none", Policy::kNone},
    {"single", Policy::kSingle},
    {"threshold", Policy::kThreshold},
    {"mgwfbp", Policy::kMgwfbp},
    {"optimal", Policy::kOptimal},
}};

Groups EachAlone(const std::vector<int64_t>& order) {
  Groups groups;
  groups.reserve(order.size());
  for (const int64_t gradient : order) {
    groups.push_back({gradient});
  }
  return groups;
}

// A group grows in order of readiness until the next gradient would exceed the limit.
Groups UpTo(double limit_bytes, const std::vector<int64_t>& order, const std::vector<Gradient>& gradients) {
  Groups groups;
  double bytes = 0;
  for (const int64_t gradient : order) {
    if (groups.empty() || bytes + gradients[gradient].bytes > limit_bytes) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().push_back(gradient);
    bytes += gradients[gradient].bytes;
  }
  return groups;
}

// Algorithm 1 of MG-WFBP. A decision changes the beginning of later sends only, so one pass does what the paper does
// with a new computation of all begins after each merge.
Groups Greedy(double limit_bytes, const std::vector<int64_t>& order, const std::vector<Gradient>& gradients,
              const LinearCost& line) {
  const auto cost = CostModel::Linear(line.a_s, line.b_s_per_byte);
  Groups groups;
  GroupCost group(gradients, cost);
  double begin_s = 0;  // of the send of the last member so far, were it the last one: the paper's tau_c
  for (const int64_t gradient : order) {
    const auto& next = gradients[gradient];
    if (groups.empty()) {
      begin_s = next.ready_s;
      groups.emplace_back();
    } else {
      const double saved_s = group.HasTypeOf(gradient) ? line.a_s : 0;
      const bool merge = next.ready_s - begin_s < saved_s && group.bytes() + next.bytes <= limit_bytes;
      if (!merge) {
        begin_s += group.seconds();
        group.Clear();
        groups.emplace_back();
      }
      begin_s = std::max(begin_s, next.ready_s);
    }
    groups.back().push_back(gradient);
    group.Add(gradient);
  }
  return groups;
}

// Dynamic programme over the last group: end(j) = min over i of max(end(i), ready(j)) + cost(i..j).
Groups Exact(double limit_bytes, const std::vector<int64_t>& order, const std::vector<Gradient>& gradients,
             const CostModel& cost) {
  struct Prefix {
    double end_s = 0;  // counted from the first gradient's readiness
    size_t groups = 0;
    size_t last_from = 0;  // where its last group begins
  };
  std::vector<Prefix> prefixes(order.size() + 1);
  GroupCost group(gradients, cost);
  for (size_t to = 1; to <= order.size(); ++to) {
    const double ready_s = gradients[order[to - 1]].ready_s - gradients[order[0]].ready_s;
    auto& best = prefixes[to];
    best.end_s = kUnlimited;
    group.Clear();
    for (size_t from = to; from-- > 0;) {
      group.Add(order[from]);
      const double same_s = from + 1 == to ? 0 : kSameEnd * best.end_s;
      // Costs do not fall as a group grows, so nothing better comes after these.
      if (from + 1 < to && (group.bytes() > limit_bytes || ready_s + group.seconds() > best.end_s + same_s)) {
        break;
      }
      const auto& before = prefixes[from];
      const double end_s = std::max(before.end_s, ready_s) + group.seconds();
      const size_t groups = before.groups + 1;
      if (end_s < best.end_s - same_s || (end_s <= best.end_s + same_s && groups < best.groups)) {
        best = {end_s, groups, from};
      }
    }
  }
  Groups groups;
  for (size_t to = order.size(); to > 0; to = prefixes[to].last_from) {
    groups.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(prefixes[to].last_from),
                        order.begin() + static_cast<std::ptrdiff_t>(to));
  }
  std::reverse(groups.begin(), groups.end());
  return groups;
}

}  // namespace

Policy PolicyOf(const std::string& name) { return ByName("fusion policy", kPolicies, name); }

Groups Plan(Policy policy, const std::vector<Gradient>& gradients, const CostModel& cost, const PlanLimits& limits) {
  ValidateGradients(gradients);
  const double threshold_bytes = RequireNotNegative("threshold_bytes", limits.threshold_bytes);
  const double max_bytes = RequireNotNegative("max_group_bytes", limits.max_group_bytes);
  const double limit_bytes = max_bytes > 0 ? max_bytes : kUnlimited;
  const auto order = OrderOfReadiness(gradients);
  switch (policy) {
    case Policy::kNone:
      return EachAlone(order);
    case Policy::kSingle:
      return UpTo(limit_bytes, order, gradients);
    case Policy::kThreshold:
      return threshold_bytes > 0 ? UpTo(std::min(threshold_bytes, limit_bytes), order, gradients) : EachAlone(order);
    case Policy::kMgwfbp:
      return Greedy(limit_bytes, order, gradients, cost.linear());
    case Policy::kOptimal:
      return Exact(limit_bytes, order, gradients, cost);
  }
  throw std::invalid_argument("no such fusion policy");
}

}  // namespace paceline::core
