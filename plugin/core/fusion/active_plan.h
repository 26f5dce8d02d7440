// A plan as it is followed: what it says about each tensor.

#ifndef PACELINE_CORE_FUSION_ACTIVE_PLAN_H
#define PACELINE_CORE_FUSION_ACTIVE_PLAN_H

#include <cstdint>
#include <string>
#include <vector>

#include "core/fusion/merge_plan.h"
#include "core/fusion/monitor.h"

namespace paceline::core {

// Tensors that go in one message, and how long one may wait for the others.
struct MergeGroup {
  std::vector<std::string> names;
  int64_t timeout_ns = 0;
};

// Tensors are those of the Monitor by whose numbers the plan was made, in its order. One thread at a time.
class ActivePlan {
 public:
  // No plan: every tensor goes alone.
  ActivePlan() = default;
  // A plan that is not active is none.
  ActivePlan(const MergePlan& plan, const std::vector<ReducedTensor>& tensors);

  // By tensor, negative where it goes alone; empty without a plan.
  const std::vector<int32_t>& group_of() const { return group_of_; }
  int64_t timeout_ns() const { return timeout_ns_; }
  int32_t groups() const { return static_cast<int32_t>(groups_.size()); }
  // The group of a tensor, by its number (negative: one that was never reduced): negative if it goes alone.
  int32_t GroupOf(int32_t tensor) const;
  // In so many messages a tensor goes in armed steps.
  int32_t PartsOf(int32_t tensor) const;
  // Its group; null if it goes alone. Lives as long as the plan.
  const MergeGroup* Group(int32_t tensor) const;
  // What the largest group takes in the buffer of a message.
  int64_t largest_group_bytes() const { return largest_group_bytes_; }

 private:
  std::vector<int32_t> group_of_, parts_of_;
  std::vector<MergeGroup> groups_;
  int64_t timeout_ns_ = 0;
  int64_t largest_group_bytes_ = 0;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_ACTIVE_PLAN_H
