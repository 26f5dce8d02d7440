// Which gradients are sent together: the built-in fusion policies.

#ifndef PACELINE_CORE_FUSION_PLANNER_H
#define PACELINE_CORE_FUSION_PLANNER_H

#include <cstdint>
#include <string>
#include <vector>

#include "core/fusion/cost_model.h"
#include "core/fusion/merge_groups.h"

namespace paceline::core {

enum class Policy : int32_t {
  kNone,       // every tensor alone, as soon as it is ready (WFBP)
  kSingle,     // all tensors together
  kThreshold,  // in order of readiness up to a number of bytes: a byte threshold without a timer
  kMgwfbp,     // the greedy rule of MG-WFBP, on the line of the cost model
  kOptimal,    // the plan that is finished first, of all plans that keep the order of readiness
};

// "none", "single", "threshold", "mgwfbp" or "optimal". Throws std::invalid_argument for any other name, with the list.
Policy PolicyOf(const std::string& name);

struct PlanLimits {
  double threshold_bytes = 0;  // of kThreshold; 0: every tensor alone
  double max_group_bytes = 0;  // which no group of more than one tensor exceeds under any policy; 0: no limit
};

// Merge groups in order of sending, members in order of readiness. Every gradient is in exactly one group, and a group
// holds gradients that are neighbours in order of readiness. kOptimal prefers, of plans that end at the same time,
// fewer groups up to each gradient. The same input gives the same plan.
//
// Gradients of several types: a group is one message for each type in it. MG-WFBP knows one type only; for more, what
// merging saves is the start-up time if the group has the next gradient's type already, and nothing if not.
//
// Throws std::invalid_argument for bytes, times or limits that are not finite or negative.
Groups Plan(Policy policy, const std::vector<Gradient>& gradients, const CostModel& cost,
            const PlanLimits& limits = {});

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_PLANNER_H
