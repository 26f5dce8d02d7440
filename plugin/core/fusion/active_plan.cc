#include "core/fusion/active_plan.h"

#include <algorithm>
#include <cstddef>

#include "core/fusion/message_packing.h"

namespace paceline::core {

ActivePlan::ActivePlan(const MergePlan& plan, const std::vector<ReducedTensor>& tensors) {
  if (!plan.active) {
    return;
  }
  group_of_ = plan.group_of;
  parts_of_ = plan.parts_of;
  timeout_ns_ = static_cast<int64_t>(plan.timeout_s * 1e9);
  groups_.assign(static_cast<size_t>(plan.groups()), {{}, timeout_ns_});
  std::vector<int64_t> group_bytes(groups_.size(), 0);
  for (size_t t = 0; t < group_of_.size() && t < tensors.size(); ++t) {
    if (group_of_[t] >= 0) {
      const auto group = static_cast<size_t>(group_of_[t]);
      groups_[group].names.push_back(tensors[t].name);
      group_bytes[group] += PaddedBytes(tensors[t].bytes);
      largest_group_bytes_ = std::max(largest_group_bytes_, group_bytes[group]);
    }
  }
}

int32_t ActivePlan::GroupOf(int32_t tensor) const {
  return tensor >= 0 && tensor < static_cast<int32_t>(group_of_.size()) ? group_of_[static_cast<size_t>(tensor)] : -1;
}

int32_t ActivePlan::PartsOf(int32_t tensor) const {
  return tensor >= 0 && tensor < static_cast<int32_t>(parts_of_.size()) ? parts_of_[static_cast<size_t>(tensor)] : 1;
}

const MergeGroup* ActivePlan::Group(int32_t tensor) const {
  const int32_t group = GroupOf(tensor);
  return group < 0 ? nullptr : &groups_[static_cast<size_t>(group)];
}

}  // namespace paceline::core
