// What the planner of armed steps keeps of plans of the first gradients.

#ifndef PACELINE_CORE_FUSION_ARMED_STATES_H
#define PACELINE_CORE_FUSION_ARMED_STATES_H

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "core/fusion/armed_messages.h"

namespace paceline::core {

// A plan of the first gradients, in a number of groups: nothing else of it matters to those that follow.
struct ArmedState {
  MessageWindow window;
  size_t from = 0;    // where its last group begins
  size_t before = 0;  // the state there that it came from
};

// States of the same gradients and as many groups. Few of the many that come are left, so they are compared at the end,
// in order.
class ArmedCandidates {
 public:
  // A state to be filled in; `Keep` keeps it.
  ArmedState& next();
  void Keep();
  // The earliest end of those that were kept.
  double first_end_s() const { return first_end_s_; }

  // Those of which something can come that does not come of another one as early, the one that ends first before
  // others; none are left here. Nothing that ends by `idle_s` delays what follows.
  std::vector<ArmedState> Take(double idle_s);

 private:
  std::vector<ArmedState> states_;  // beyond `count_` they are memory for others
  size_t count_ = 0;
  std::vector<std::pair<double, size_t>> by_end_;  // ends and places
  double first_end_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_ARMED_STATES_H
