// When the messages of an armed step (docs/methods/armed.md) begin and end.

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
  int64_t together = 1;       // w: messages that may be under way together
  double work_s = 0;          // what each message adds to others beside its bytes: processors' work does not overlap

  // a: what ranks wait in a start-up while others may go on. Below 0 where messages beside others take longer than
  // alone.
  double startup_s() const { return message(0) - work_s; }
};

// Throws std::invalid_argument for a round or work that is not finite or negative, and unless `together` is at least 1.
inline void ValidateArmedCosts(const ArmedCosts& costs) {
  RequireNotNegative("coordination_s", costs.coordination_s);
  RequireNotNegative("work_s", costs.work_s);
  if (costs.together < 1) {
    throw std::invalid_argument("together is " + std::to_string(costs.together) +
                                "; one message at least is under way");
  }
}

// Messages of groups behind the first one, in order of sending. Of message k:
//
//   r_k           its group is complete
//   T_k           what it takes alone, a the waiting in that: the cost of 0 bytes without work. The rest, T_k - a, is
//                 work and wire
//   s_k           it begins: max(r_k, s_{k-1}, e_{k-w}), in order, at most w of them under way
//   e_k           it ends: max(s_k + T_k, e_{k-1} + T_k - a)
//
// During a start-up ranks wait for hops, so those of several messages overlap; work and the wire do not, take messages
// in their order, and so they end in it. The first group is negotiated: it is message 0, begins a round after it is
// complete, and no other one begins before it. With w = 1 nothing overlaps, and e_k = s_k + T_k. A plan of one group is
// its first group: it is not armed, and pays its round.
class MessageWindow {
 public:
  // Message 0 begins at `begin_s` and ends at `end_s`. `together` is at least 1.
  MessageWindow(int64_t together, double begin_s, double end_s) : ends_s_(static_cast<size_t>(together), begin_s) {
    ends_s_.back() = end_s;
  }

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
