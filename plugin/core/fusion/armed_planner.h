// The plan that ends first where steps are armed: the policy `optimal` under the model of armed_messages.h.

#ifndef PACELINE_CORE_FUSION_ARMED_PLANNER_H
#define PACELINE_CORE_FUSION_ARMED_PLANNER_H

#include <vector>

#include "core/fusion/armed_messages.h"
#include "core/fusion/merge_groups.h"

namespace paceline::core {

// The same messages, whose start-ups take twice as long, and whose bytes take `wire` times as long.
ArmedCosts WithHeadroom(const ArmedCosts& costs, double wire);

// Of all plans that keep the order of readiness the one whose end, and the price of each of its groups added, is the
// earliest; of equal ones one with the fewest groups. The price is a tenth of a start-up, or of its work if that is
// more: groups cost processors. `max_group_bytes` as in PlanLimits. Gradients that are alone in a group behind the
// first one go in parts of at most `part_bytes` (0: no limit), for the price of one group. Exact as far as 32 states of
// a prefix go, which large models may have more of.
//
// Throws std::invalid_argument for bytes, times or limits that are not finite or negative, and unless `together` is at
// least 1.
Groups EarliestArmed(const std::vector<Gradient>& gradients, const ArmedCosts& costs, double max_group_bytes = 0,
                     double part_bytes = 0);

// What plans are judged by, less is better: their end and the price of their groups, the mean of what it is if
// start-ups take twice what was measured, and bytes 1, 1.25 and 1.5 times. What a start-up takes depends on what else
// processors do, and a plan whose messages just fit between its gradients exposes whatever they take longer. The wire
// takes what it takes unless others use it: a plan for one that is slower has a large last message. Seconds.
double WorthOf(const std::vector<Gradient>& gradients, const Groups& groups, const ArmedCosts& costs);

// As Plan with kOptimal: of the plans that are the earliest in one of these three cases the one that is worth most. No
// group of several gradients has more than 8 MiB, and larger gradients behind the first group go in parts. If one group
// is best, it is the plan, and steps will not be armed. Throws as EarliestArmed.
Groups PlanArmed(const std::vector<Gradient>& gradients, const ArmedCosts& costs, double max_group_bytes = 0);

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_ARMED_PLANNER_H
