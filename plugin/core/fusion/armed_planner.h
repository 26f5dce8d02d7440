// The plan that ends first where steps are armed: the policy `optimal` under the model of armed_messages.h.

#ifndef PACELINE_CORE_FUSION_ARMED_PLANNER_H
#define PACELINE_CORE_FUSION_ARMED_PLANNER_H

#include <vector>

#include "core/fusion/armed_messages.h"
#include "core/fusion/merge_groups.h"

namespace paceline::core {

// As Plan with kOptimal: of all plans that keep the order of readiness the one that ends first, of those that end
// together one with few groups: where time is left before the next gradient comes, a group more must bring a tenth of a
// start-up. `max_group_bytes` as in PlanLimits. If one group is best, it is the plan, and steps will not be armed.
//
// Throws std::invalid_argument for bytes, times or limits that are not finite or negative, and unless `together` is at
// least 1.
Groups PlanArmed(const std::vector<Gradient>& gradients, const ArmedCosts& costs, double max_group_bytes = 0);

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_ARMED_PLANNER_H
