// Model of an armed step (docs/methods/armed.md): begin and end of its messages.

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

// Costs of armed and negotiated messages.
struct ArmedCosts {
  CostModel message;          // T: a single message in flight, without a coordination round
  double coordination_s = 0;  // a coordination round
  int64_t together = 1;       // w: maximum number of messages in flight
  double work_s = 0;          // processor time of a message in addition to its bytes; the work of messages is serial

  // a: time of a start-up in which other messages proceed. Negative if a message takes longer while others are in
  // flight than alone.
  double startup_s() const { return message(0) - work_s; }
};

// Throws std::invalid_argument if coordination_s or work_s is negative or not finite, and if `together` is below 1.
inline void ValidateArmedCosts(const ArmedCosts& costs) {
  RequireNotNegative("coordination_s", costs.coordination_s);
  RequireNotNegative("work_s", costs.work_s);
  if (costs.together < 1) {
    throw std::invalid_argument("together is " + std::to_string(costs.together) +
                                "; at least one message is in flight");
  }
}

// Messages of the groups after the first group, in the order of sending. Times of message k:
//
//   r_k  its group is complete
//   T_k  its duration alone. Its start-up a is the cost of 0 bytes without work; T_k - a is work and transfer
//   s_k  begin: max(r_k, s_{k-1}, e_{k-w}). Messages begin in order, with at most w in flight
//   e_k  end: max(s_k + T_k, e_{k-1} + T_k - a)
//
// In a start-up ranks wait for hops, so start-ups of several messages overlap. Work and transfer do not overlap: they
// serve messages in order, so messages end in order. The first group is negotiated: it is message 0, begins one
// coordination round after it is complete, and no other message begins before it. With w = 1 nothing overlaps, and
// e_k = s_k + T_k. A plan of one group is not armed, and pays its round.
class MessageWindow {
 public:
  // Message 0 begins at `begin_s` and ends at `end_s`. `together` is at least 1.
  MessageWindow(int64_t together, double begin_s, double end_s) : ends_s_(static_cast<size_t>(together), begin_s) {
    ends_s_.back() = end_s;
  }

  // Sends the next message, complete at `ready_s`. Returns the time of its begin.
  double Send(double ready_s, double seconds, double startup_s) {
    const double begin_s = std::max(ready_s, ends_s_.front());
    // This form gives exactly begin + T, without a rounding error, if nothing overlaps.
    const double end_s = std::max(begin_s + seconds, ends_s_.back() + (seconds - startup_s));
    ends_s_.erase(ends_s_.begin());
    ends_s_.push_back(end_s);
    return begin_s;
  }

  double end_s() const { return ends_s_.back(); }
  // Ends of the last w messages; the latest message is the last element.
  const std::vector<double>& ends_s() const { return ends_s_; }

  // Raises ends as far as no later message is delayed, so that equivalent windows become equal. The next message is
  // complete at `next_ready_s` at the earliest, and e_k = T_k + max(s_k, e_{k-1} - a). So an end before both times has
  // no effect, except the latest end.
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
