// Armed steps: where steps are all alike, the first group of each is negotiated, and the others go without.

#ifndef PACELINE_BRIDGE_ARMED_ARMED_H
#define PACELINE_BRIDGE_ARMED_ARMED_H

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bridge/armed/group_message.h"
#include "bridge/message_plan.h"
#include "bridge/message_reducer.h"
#include "bridge/participant.h"
#include "core/armed/armed_step.h"
#include "core/armed/awaited.h"
#include "core/armed/step_watch.h"

namespace horovod::paceline {

// What Python asks. Any thread.
struct ArmedStatus {
  std::atomic<::paceline::core::StepWatch::State> state{::paceline::core::StepWatch::State::kOff};
  std::atomic<::paceline::core::Unarmed> why{::paceline::core::Unarmed::kNoPlan};
  // Reason for which this rank last raised its flag.
  std::atomic<::paceline::core::Attention> attention{::paceline::core::Attention::kNone};
  std::atomic<int64_t> steps{0}, messages{0}, fallbacks{0};  // in this world; fallbacks: aborted steps
};

// Armed steps of the process set of all ranks. Operations of other process sets wait until an armed step ends, or end
// it.
//
// While steps are armed, requests for tensors after the first group are not passed on from the queue (Popped): they are
// held here, and in Horovod's table of entries. All ranks perform the messages of the first group at the same place in
// the sequence of operations; then each rank runs the step (RoundPerformed). It takes requests from the queue itself,
// and sends messages as they become complete, until the last message ended or a rank raised its flag. Tensors that are
// not reduced then return to the queue.
class Armed : public Participant {
 public:
  // Whether tensors of this name are no ordinary ones.
  using Special = std::function<bool(int32_t process_set_id, const std::string& name)>;
  // Why the world has failed; empty: it has not.
  using WhyFailed = std::function<std::string()>;
  // All that was handed in so far needs no round; see Participant::TakenUp.
  using TakenUp = std::function<void()>;

  Armed(const MessagePlan& plan, MessageReducer& reducer, Special special, WhyFailed why_failed, TakenUp taken_up)
      : plan_(plan),
        reducer_(reducer),
        special_(std::move(special)),
        why_failed_(std::move(why_failed)),
        taken_up_(std::move(taken_up)) {}

  void BeginWorld() override;
  ::paceline::core::Need Queued(const common::Request& request, int32_t process_set_id) override;
  void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) override;
  Clock::duration SleepLimit() override;
  void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) override;
  void AfterExecute(const Executed& executed) override;
  void RoundBegun(common::ProcessSet& process_set) override;
  void RoundPerformed(common::ProcessSet& process_set) override;

  const ArmedStatus& status() const { return status_; }

 private:
  using State = ::paceline::core::StepWatch::State;

  // Where a tensor is in an armed step.
  struct Member {
    int32_t message = 0;
    size_t place = 0;            // among the message's tensors
    std::vector<int64_t> shape;  // as it was negotiated last
  };
  struct Run;  // running.cc

  // Messages that may be under way together, beside the first group's. The plan's model counts that one, too.
  static constexpr int32_t kTogether = ::paceline::core::kTogether;
  // At most so long, and half of the transport's limit, a rank waits for a gradient of an armed step: then it sends its
  // flag, before a rank that waits for this one's message ends the world (docs/reference/limits.md).
  static constexpr int64_t kLongestTimeout_ns = 5'000'000'000;

  void Follow(common::ProcessSet& process_set);
  void Disarm();
  void Arm(const common::ProcessSet& process_set);
  int64_t KeyOf(const common::Response& response);
  const Member* MemberOf(const common::Request& request) const;
  bool Fits(const common::Response& response) const;
  void Release(std::deque<common::Request>& messages);
  bool Impatient();
  bool FirstOffered() const;
  void Step(common::ProcessSet& process_set);
  void Drain(Run& run);
  void Take(Run& run, common::Request request);
  uint8_t* BufferOf(size_t message);
  void Send(Run& run);
  void Receive(Run& run);
  void Wait(Run& run);
  bool OthersWait(const Run& run) const;
  void UpdateStatus();

  const MessagePlan& plan_;
  MessageReducer& reducer_;
  const Special special_;
  const WhyFailed why_failed_;
  const TakenUp taken_up_;

  // Background thread only, but for what follows.
  common::HorovodGlobalState* state_ = nullptr;
  const common::ProcessSet* all_ = nullptr;  // that of all ranks
  Followed followed_;
  ::paceline::core::StepWatch watch_;
  std::vector<::paceline::core::WatchedMessage> round_;  // what was performed in this round
  bool others_ = false;                                  // and whether it is more than messages of first groups
  int32_t last_group_ = -1;                              // of the message before
  // What was performed in the running step and in the one before it, by key.
  std::unordered_map<int64_t, common::Response> responses_, responses_before_;
  std::unordered_map<std::string, std::vector<int64_t>> shapes_;  // of tensors of the plan, as this rank offered them
  std::unordered_set<std::string> offered_;  // tensors of the plan that are being negotiated, as far as is known here
  std::unordered_map<uint64_t, std::vector<::paceline::core::WatchedMessage>> proved_;  // by a plan's digest
  std::vector<GroupMessage> messages_;  // of an armed step, behind the first group's
  std::unordered_map<std::string, Member> members_;
  std::unordered_set<std::string> first_;  // tensors of the first group
  std::deque<common::Request> held_;
  bool released_ = false;  // this rank has let go what is held while steps are armed
  int64_t waited_ns_ = 0, looked_ns_ = 0;
  std::vector<uint8_t> buffers_;  // one behind the other, each for a message under way
  size_t buffer_bytes_ = 0;
  bool reported_ = false;

  ArmedStatus status_;
  ::paceline::core::Awaited awaited_;        // while steps are armed: what need not begin a round
  std::atomic<int64_t> added_{0};            // operations that were handed in, in all sets
  std::atomic<int64_t> wake_at_{INT64_MAX};  // so many of them end the wait
  std::mutex mutex_;                         // protects nothing: a wait begins before or after what ends it
  std::condition_variable woken_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_ARMED_ARMED_H
