// When the messages of an armed step (docs/armed.md) begin and end.

#ifndef PACELINE_CORE_FUSION_ARMED_MESSAGES_H
#define PACELINE_CORE_FUSION_ARMED_MESSAGES_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/arguments.h"
#include "core/fusion/cost_model.h"

namespace paceline::core {

// What messages cost, armed and negotiated.
struct ArmedCosts {
  CostModel message;          // T: one message alone, without a coordination round
  double coordination_s = 0;  // a round
  int64_t together = 1;       // w: messages behind the first group that may be under way together
};

// Throws std::invalid_argument for a round that is not finite or negative, and unless `together` is at least 1.
inline void ValidateArmedCosts(const ArmedCosts& costs) {
  RequireNotNegative("coordination_s", costs.coordination_s);
  if (costs.together < 1) {
    throw std::invalid_argument("together is " + std::to_string(costs.together) +
                                "; one message at least is under way");
  }
}

// Messages of groups behind the first one, in order of sending. Of message k:
//
//   r_k           its group is complete
//   T_k           what it takes alone, a the start-up in that: the cost of 0 bytes. The rest, T_k - a, is wire
//   s_k           it begins: max(r_k, s_{k-1}, e_{k-w}), in order, at most w of them under way
//   e_k           it ends: max(s_k + a, e_{k-1}) + T_k - a
//
// During a start-up ranks wait for hops, so those of several messages overlap; the wire is one, takes messages in their
// order, and so they end in it. The first group is negotiated, costs what a group does that is not armed, and ends
// before any other message begins (bridge/armed): it stands for e_0 and all before. With w = 1 nothing overlaps, and
// e_k = s_k + T_k. A plan of one group is its first group: it is not armed, and pays its round.
class MessageWindow {
 public:
  // Nothing is under way from `free_s` on. `together` is at least 1.
  MessageWindow(int64_t together, double free_s) : ends_s_(static_cast<size_t>(together), free_s) {}

  // Sends the next message, complete at `ready_s`; returns when it begins.
  double Send(double ready_s, double seconds, double startup_s) {
    const double begin_s = std::max(ready_s, ends_s_.front());
    // Written such that rounding leaves begin + T where nothing overlaps.
    const double end_s = std::max(begin_s + seconds, ends_s_.back() + (seconds - startup_s));
    ends_s_.erase(ends_s_.begin());
    ends_s_.push_back(end_s);
    return begin_s;
  }

  double end_s() const { return ends_s_.back(); }
  // Of the last w messages, the latest one last.
  const std::vector<double>& ends_s() const { return ends_s_; }

  // Raises ends as far as this delays nothing, so that windows that differ in nothing else become equal. What comes is
  // complete at `next_ready_s` at the earliest, and e_k = T_k + max(s_k, e_{k-1} - a): no end before either matters,
  // but for the latest one.
  void Level(double next_ready_s, double startup_s) {
    const double least_s = std::max(next_ready_s, end_s() - startup_s);
    for (size_t n = 0; n + 1 < ends_s_.size(); ++n) {
      ends_s_[n] = std::max(ends_s_[n], least_s);
    }
  }

 private:
  std::vector<double> ends_s_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_ARMED_MESSAGES_H
