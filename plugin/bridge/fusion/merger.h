// Merging by plan for one process set: holds tensors back, merges responses, answers control operations, follows plans.

#ifndef PACELINE_BRIDGE_FUSION_MERGER_H
#define PACELINE_BRIDGE_FUSION_MERGER_H

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bridge/fusion/control_op.h"
#include "bridge/joined.h"
#include "bridge/message_plan.h"
#include "bridge/message_reducer.h"
#include "bridge/participant.h"
#include "core/fusion/active_plan.h"
#include "core/fusion/events.h"
#include "core/fusion/gate.h"
#include "core/fusion/merge_plan.h"
#include "core/fusion/monitor.h"

namespace horovod::paceline {

// Messages that were timed, by kind (SweepOf). Those of a burst count from its first one's beginning.
using Sweeps = std::array<std::vector<::paceline::core::Message>, kSweepKinds>;

// Everything this rank knows about a control operation that it asked for and that has been answered.
struct Answer {
  ControlKind kind = ControlKind::kSettings;
  int64_t number = 0;
  std::string error;           // empty if it succeeded
  std::vector<double> values;  // combined over the ranks
  // For kMeasure: what the values are about, as this rank knew it at that moment.
  std::vector<::paceline::core::ReducedTensor> tensors;
  Sweeps sweeps;
  std::vector<::paceline::core::Message> messages;
};

// What this process wants. Any thread.
struct Wanted {
  std::atomic<double> policy{0};
  std::atomic<bool> armed{false};
};

// What ranks have said about the policy they want, by rank in the process set; 0: has not been heard.
struct Agreement {
  std::vector<double> asked;
  bool complete = false;  // all ranks were heard and want the same
  bool plans = false;     // and it makes plans
  bool armed = false;     // and all want armed steps
};

// One per process set that this rank is in. Methods without a note are called by the background thread.
class Merger {
 public:
  // Layout of a measurement: 1 / complete steps in memory (kIrregular: none); the step without what merging can hide,
  // in seconds; 1 / coordination round; readiness of every tensor (kIrregular: not in every step); 1 / duration of the
  // sweeps, kind by kind, and of the messages.
  static constexpr int64_t kMeasureHeader = 3;
  static constexpr int64_t kSweeps = 64;
  static constexpr int64_t kAllSweeps = static_cast<int64_t>(kSweepKinds) * kSweeps;
  static constexpr double kIrregular = 1e9;

  // `serial` tells this merger from others that served the same id. `waits_elsewhere`: as in Merging.
  Merger(int32_t process_set_id, int64_t serial, std::function<bool(const std::string& name)> waits_elsewhere,
         MessageReducer& reducer)
      : process_set_id_(process_set_id),
        serial_(serial),
        waits_elsewhere_(std::move(waits_elsewhere)),
        reducer_(reducer) {}

  // Any thread: a tensor was handed in.
  void Arrived(const std::string& name, int64_t now_ns);
  // Any thread: ask for a control operation as soon as no rank of the set has joined. `values` are this rank's (kPlan),
  // or the sizes in bytes (kSweep, an operation each). Returns the number of the (last) operation.
  int64_t Ask(ControlKind kind, std::vector<double> values);

  void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, const Wanted& wanted);
  void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages);
  // The gate looks at the clock in rounds.
  Clock::duration SleepLimit() const;
  void Fuse(common::Controller& controller, std::deque<common::Response>& responses, common::ResponseList& list);
  void BeforeExecute(common::ProcessSet& process_set, const common::Response& response);
  void AfterExecute(const Executed& executed);
  void Performed(const Executed& executed);
  // All messages of the round have ended: control operations of the round take effect, in the order in which they
  // began.
  void RoundEnded();

  // As in MessagePlan. The limit is what the active plan's largest group needs, and at least Horovod's, which is that
  // of its own messages and is never changed.
  const ::paceline::core::MergeGroup* GroupOf(const std::string& name) const;
  int32_t GroupNumberOf(const std::string& name) const;
  int32_t PartsOf(const std::string& name) const;
  Followed followed() const;
  int64_t LimitBytes(common::Controller& controller) const;

  // Any thread.
  Agreement agreement() const;
  ::paceline::core::MergePlan plan() const;
  const ::paceline::core::Monitor& monitor() const { return monitor_; }
  bool watching() const { return watching_; }
  int64_t serial() const { return serial_; }
  int32_t process_set_id() const { return process_set_id_; }
  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }
  int64_t expired() const { return expired_; }
  int64_t answered() const { return answered_; }
  // Horovod's own limit of a message.
  double threshold_bytes() const { return static_cast<double>(threshold_bytes_); }
  double cycle_s() const { return cycle_s_; }
  // Any thread: the last answer of this kind.
  Answer answer(ControlKind kind) const;

 private:
  // A control operation of this round. What its end brought on this rank waits for the end of the round.
  struct Begun {
    ControlOp op;
    Answer answer;
    bool ended = false;
    ::paceline::core::Message sweep;  // of a sweep: how long it took
  };
  struct Asking {
    ControlOp op;
    int64_t elements = 0;
    std::vector<double> values;
  };

  void Let(const std::vector<int32_t>& numbers, std::deque<common::Request>& messages);
  void Filter(common::Request message, std::deque<common::Request>& messages);
  void IssueControlOps(common::ProcessSet& process_set, std::deque<common::Request>& messages);
  void Fill(const ControlOp& op, CpuTensor& buffer);
  std::vector<double> OwnMeasurement(int64_t elements) const;
  static ::paceline::core::agreed::MessageBegun MessageOf(const common::Response& response);
  void Begin(const ControlOp& op);
  void Ended(const Executed& executed);
  void Answered(const ::paceline::core::agreed::RoundEnded& at, Begun& begun);
  void Agree(const ::paceline::core::agreed::RoundEnded& at, const std::vector<double>& settings);
  void Follow(const ::paceline::core::agreed::RoundEnded& at, ::paceline::core::MergePlan plan);
  void ChooseCollectives(const ::paceline::core::agreed::RoundEnded& at);

  const int32_t process_set_id_;
  const int64_t serial_;
  const std::function<bool(const std::string& name)> waits_elsewhere_;
  MessageReducer& reducer_;
  // Only the background thread touches these.
  ::paceline::core::Gate gate_;
  std::unordered_map<int32_t, common::Request> held_;
  common::HorovodGlobalState* state_ = nullptr;
  int64_t performed_ns_ = 0;    // when results were there last: for messages beside others, time counts from then
  int64_t cycle_start_ns_ = 0;  // 0 once the cycle's first message was performed
  double heard_ = -1;           // the policy of this rank that the others were told last
  bool heard_armed_ = false;    // and whether it wants armed steps
  Joined joined_;
  std::vector<Begun> begun_;
  Sweeps sweeps_;
  int64_t burst_ns_ = 0;  // when the first message of this round's burst was begun; 0: none was
  ::paceline::core::ActivePlan active_;
  int64_t follows_ = 0;                   // changes of what is followed
  bool armed_ = false;                    // as in Agreement
  std::unordered_set<std::string> fast_;  // tensors that go by the fastest collective, as nothing else was chosen

  // Set while all ranks want the same policy and it makes plans. Changes between rounds only, so that all ranks number
  // the same tensors.
  std::atomic<bool> watching_{false};
  std::atomic<int32_t> rank_{-1}, size_{0};
  std::atomic<int64_t> expired_{0}, answered_{0}, threshold_bytes_{0};
  std::atomic<double> cycle_s_{0};
  ::paceline::core::Monitor monitor_;

  mutable std::mutex mutex_;  // protects everything below
  std::deque<Asking> asking_;
  std::unordered_map<std::string, std::vector<double>>
      contributions_;  // values of this rank's own control operations, by name
  int64_t asked_ = 0;
  Agreement agreement_;
  ::paceline::core::MergePlan plan_;
  std::unordered_map<int32_t, Answer> answers_;  // by kind
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_FUSION_MERGER_H
