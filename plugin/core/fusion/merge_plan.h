// A plan as it is sent: which tensors are sent as one message, and what its maker expects of it.

#ifndef PACELINE_CORE_FUSION_MERGE_PLAN_H
#define PACELINE_CORE_FUSION_MERGE_PLAN_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace paceline::core {

// Tensors are numbered as in Monitor. Expectations are for reading only; negative ones are unknown.
struct MergePlan {
  static constexpr size_t kExpectations = 8;

  int64_t version = 0;   // from 1, counted by the maker; 0: no plan
  bool active = false;   // false: Horovod's own merging applies, without a plan
  double timeout_s = 0;  // how long the gate holds an incomplete group after the last arrival
  std::vector<double> expected = std::vector<double>(kExpectations, -1);
  std::vector<int32_t> group_of;  // per tensor; negative: not planned
  std::vector<int32_t> parts_of;  // per tensor: in so many messages it goes in armed steps

  // The number of groups.
  int32_t groups() const;
};

// Of the values that plugin/fusion/planning.py makes: version, active, patience, number of tensors, expectations, group
// of each tensor, parts of each tensor. None is negative, so that ranks can combine a plan with zeros by maximum: 0
// stands for "unknown" and "not planned", everything else in the two before the last is moved up by one; no parts are
// one. Throws std::invalid_argument if `values` is no plan: wrong length, a value that is not finite, a group without
// members, or one that has others beside a tensor in parts.
MergePlan DecodePlan(const std::vector<double>& values);

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_MERGE_PLAN_H
