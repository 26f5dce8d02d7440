// The policy `optimal` for armed steps: search for the plan with the lowest cost under the model of armed_messages.h.

#ifndef PACELINE_CORE_FUSION_ARMED_PLANNER_H
#define PACELINE_CORE_FUSION_ARMED_PLANNER_H

#include <vector>

#include "core/fusion/armed_messages.h"
#include "core/fusion/merge_groups.h"

namespace paceline::core {

// Costs with start-ups of twice the length and bytes of `wire` times the cost.
ArmedCosts WithHeadroom(const ArmedCosts& costs, double wire);

// Plan that keeps the order of readiness and minimises finish time plus a price per group; ties go to the plan with the
// fewest groups. The price of a group is 0.1 start-up or 0.1 of its work, whichever is more, because groups cost
// processor time. `max_group_bytes` as in PlanLimits. A gradient that is alone in a group after the first group is sent
// in parts of at most `part_bytes` (0: no limit), for the price of one group. The search keeps at most 32 states of a
// prefix: it is exact unless a prefix has more, which is possible in large models.
//
// Throws std::invalid_argument for bytes, times or limits that are negative or not finite, and if `together` is
// below 1.
Groups EarliestArmed(const std::vector<Gradient>& gradients, const ArmedCosts& costs, double max_group_bytes = 0,
                     double part_bytes = 0);

// Cost of a plan in seconds (lower is better): finish time plus the price of its groups, as the mean over three cost
// assumptions. All assume start-ups of twice the measured length; bytes cost 1, 1.25 and 1.5 times the measured value.
//
// The length of a start-up depends on the other work of the processors. In a plan whose messages just fit between the
// gradients, each delay of a message is exposed, hence the factor 2. The cost of a byte is constant unless other jobs
// use the network, and a plan for a slower network ends with a large message, hence factors of at most 1.5.
double WorthOf(const std::vector<Gradient>& gradients, const Groups& groups, const ArmedCosts& costs);

// Plan of the policy kOptimal: searches with EarliestArmed under each of the three cost assumptions, and returns the
// plan with the lowest mean cost (WorthOf). A group of several gradients has at most 8 MiB; a larger gradient after the
// first group is sent in parts. If a single group is best, it is the plan, and steps are not armed. Throws as
// EarliestArmed.
Groups PlanArmed(const std::vector<Gradient>& gradients, const ArmedCosts& costs, double max_group_bytes = 0);

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_ARMED_PLANNER_H
