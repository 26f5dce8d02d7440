// What merging needs to know about the running training: when gradients appear, what messages cost.

#ifndef PACELINE_CORE_FUSION_MONITOR_H
#define PACELINE_CORE_FUSION_MONITOR_H

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/fusion/events.h"

namespace paceline::core {

// One message.
struct Message {
  int64_t bytes = 0;
  int64_t duration_ns = 0;  // 0: it has not ended
};

// Medians over the steps in memory, of one rank. Times in seconds; negative where nothing is known.
struct Measured {
  int64_t steps = 0;            // that the medians are over
  std::vector<double> ready_s;  // per tensor: when it appears, from the first tensor of its step; negative: irregular
  double step_s = -1;           // from the first tensor of a step to that of the next
  double exposed_s = -1;        // from the last regular tensor of a step to the end of their last message
  double coordination_s = -1;   // one coordination round that led to a message
};

// Watches the allreduce operations of one group of ranks. Tensors are numbered in the order in which their first
// messages began, which is the same on all ranks, and so are the messages; times are each rank's own.
//
// A step begins with the first tensor that has already appeared in the running step, as in Recorder. Watching may begin
// in the middle of a step, and such steps would go on to begin there. Between two steps a program has waited for all
// gradients; so if tensors are on their way where a step is thought to begin, the true beginning is looked for: after
// the longest pause of that step at whose end nothing was on its way.
//
// All times are nanoseconds of one steady clock. Methods may be called from any thread.
class Monitor {
 public:
  static constexpr size_t kSteps = 24;
  static constexpr size_t kMessages = 256;
  // A program that names its tensors anew in every step is not watched beyond this.
  static constexpr size_t kMostTensors = 16384;
  // A tensor that appears in a smaller share of the steps in memory is irregular.
  static constexpr double kRegular = 0.9;
  // So are tensors of at most this size that come last, after everything before them has been reduced: values such as
  // a loss, which are averaged when the gradients are there. They are no reason to be slow with the gradients.
  static constexpr int64_t kValue_bytes = 64;

  void On(const agreed::MessageBegun& message);
  void On(const local::Arrival& arrival);
  void On(const local::MessageEnded& message);
  void Coordinated(int64_t start_ns, int64_t end_ns);
  // Forget the steps and the messages in memory (what they were like has changed), keep the numbers. The running step
  // goes on, but is not measured.
  void Restart(const agreed::RoundEnded& at);

  // The number of a tensor, negative if none of its messages has begun.
  int32_t NumberOf(const std::string& name) const;
  std::vector<ReducedTensor> tensors() const;
  std::vector<Message> messages() const;
  // Per tensor: it appeared in the running step, and has been reduced since.
  std::vector<bool> ReducedInRunningStep() const;
  // Per tensor: it has not appeared in the running step.
  std::vector<bool> CameBeforeRunningStep() const;
  // Steps that have begun on this rank.
  int64_t steps() const;
  // Over the complete steps in memory.
  Measured Measure() const;

 private:
  struct Appearance {
    int32_t number = 0;
    int64_t at_ns = 0;
    int64_t end_ns = 0;  // of its message; 0: not reduced yet
    bool alone = false;  // everything before it in its step had been reduced
  };
  struct Step {
    int64_t start_ns = 0;
    size_t waiting = 0;    // arrivals that are not reduced yet
    bool partial = false;  // watched from its middle on
    std::vector<Appearance> arrivals;
  };

  // What `complete` steps say about one tensor.
  struct Seen {
    std::vector<int64_t> ready_ns;
    size_t alone = 0;
  };

  void Begin(int64_t now_ns);
  void Realign();
  std::vector<bool> Regular(const std::vector<Seen>& seen, size_t complete) const;

  mutable std::mutex mutex_;  // protects everything below
  std::unordered_map<std::string, int32_t> numbers_;
  std::vector<ReducedTensor> tensors_;
  std::vector<std::pair<int64_t, size_t>> last_;  // per tensor: the step in which it last appeared, and its place there
  std::deque<Step> steps_;  // complete ones (the first one may be partial) and, last, the running one
  int64_t begun_ = 0;
  std::deque<Message> messages_;
  int64_t messages_begun_ = 0;    // the last of them is messages_'s last
  std::vector<int64_t> message_;  // per tensor: the last message that held it, counted from 1
  std::deque<int64_t> coordination_ns_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_MONITOR_H
