#include "bridge/fusion/merger.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <tuple>

#include "bridge/packing.h"
#include "bridge/waking.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

namespace {

using ::paceline::core::ActivePlan;
using ::paceline::core::MergeGroup;
using ::paceline::core::MergePlan;

// What each rank says when it is asked for its settings: the policy, and whether it wants armed steps.
constexpr int64_t kSettingsOfRank = 2;

// A number for what must be the same within a message, in one process set.
int32_t TypeOf(const common::Response& response) {
  const bool on_cpu = response.devices().empty() || response.devices()[0] == CPU_DEVICE_ID;
  const auto factors = response.prescale_factor() * 3 + response.postscale_factor();
  return (static_cast<int32_t>(response.tensor_type()) * 8 + static_cast<int32_t>(response.reduce_op())) * 1024 +
         (on_cpu ? 0 : 512) + static_cast<int32_t>(std::hash<double>()(factors) % 512);
}

}  // namespace

core::agreed::MessageBegun Merger::MessageOf(const common::Response& response) {
  core::agreed::MessageBegun message;
  for (size_t n = 0; n < response.tensor_names().size(); ++n) {
    message.tensors.push_back({response.tensor_names()[n], BytesOf(response, n), TypeOf(response)});
  }
  return message;
}

void Merger::Arrived(const std::string& name, int64_t now_ns) {
  if (watching_) {
    monitor_.On(core::local::Arrival{name, now_ns});
  }
}

int64_t Merger::Ask(ControlKind kind, std::vector<double> values) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto ask = [&](std::vector<double> own, int64_t elements) {
    asking_.push_back({{kind, rank_, ++asked_, 0}, elements, std::move(own)});
  };
  switch (kind) {
    case ControlKind::kSettings:
      ask({}, kSettingsOfRank * size_);
      break;
    case ControlKind::kMeasure:
      ask({}, kMeasureHeader + static_cast<int64_t>(monitor_.tensors().size()) + kAllSweeps +
                  static_cast<int64_t>(::paceline::core::Monitor::kMessages));
      break;
    case ControlKind::kSweep:
    case ControlKind::kFastSweep:
    case ControlKind::kBurst:
      for (const double bytes : values) {
        // Two halves of float32.
        ask({}, std::max<int64_t>(static_cast<int64_t>(bytes) / 8, 1));
      }
      break;
    case ControlKind::kPlan: {
      const auto elements = static_cast<int64_t>(values.size());
      ask(std::move(values), elements);
      break;
    }
  }
  return asked_;
}

void Merger::Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, const Wanted& wanted) {
  state_ = &state;
  rank_ = process_set.controller->GetRank();
  size_ = process_set.controller->GetSize();
  cycle_start_ns_ = Nanoseconds(Clock::now());
  burst_ns_ = 0;
  joined_.Return(process_set);  // a control operation ended early, in an error before it was performed
  const double policy = wanted.policy;
  const bool armed = wanted.armed && policy > 1;  // there are no armed steps without plans
  if (policy != std::max(heard_, 0.0) || armed != heard_armed_) {
    heard_ = policy;
    heard_armed_ = armed;
    Ask(ControlKind::kSettings, {});
  }
  if (watching_) {
    threshold_bytes_ = process_set.controller->TensorFusionThresholdBytes();
    cycle_s_ = state.parameter_manager.CycleTimeMs() * 1e-3;
  }
}

// --- hook popped
// ------------------------------------------------------------------------------------------------------

void Merger::Let(const std::vector<int32_t>& numbers, std::deque<common::Request>& messages) {
  for (const int32_t number : numbers) {
    const auto held = held_.find(number);
    messages.push_back(std::move(held->second));
    held_.erase(held);
  }
}

void Merger::Filter(common::Request message, std::deque<common::Request>& messages) {
  if (message.request_type() == common::Request::JOIN) {
    Let(gate_.Release(), messages);
  }
  const int32_t number =
      message.request_type() == common::Request::ALLREDUCE ? monitor_.NumberOf(message.tensor_name()) : -1;
  if (number < 0 || waits_elsewhere_(message.tensor_name())) {
    messages.push_back(std::move(message));
    return;
  }
  held_[number] = std::move(message);
  Let(gate_.Arrive(number), messages);
}

Clock::duration Merger::SleepLimit() const {
  return held_.empty() ? Clock::duration::max()
                       : std::chrono::nanoseconds(active_.timeout_ns() / ::paceline::core::Gate::kLooks);
}

void Merger::IssueControlOps(common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  // Where ranks have joined, operations that not all ranks hand in are complete at other counts.
  if (process_set.joined || process_set.joined_size > 0) {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  while (!asking_.empty()) {
    auto& asking = asking_.front();
    const int32_t parts = SweepOf(asking.op.kind) >= 0 ? 2 : 1;
    for (asking.op.part = 0; asking.op.part < parts; ++asking.op.part) {
      messages.push_back(RequestFor(asking.op, asking.elements));
    }
    asking.op.part = 0;
    contributions_[NameOf(asking.op)] = std::move(asking.values);
    asking_.pop_front();
  }
}

void Merger::Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  std::deque<common::Request> popped;
  popped.swap(messages);
  for (auto& message : popped) {
    // Handing in this rank's part in a control operation leaves a vote for it behind, which has been counted already.
    if (message.request_type() == common::Request::ALLREDUCE && IsControlOp(message.tensor_name())) {
      continue;
    }
    if (watching_) {
      Filter(std::move(message), messages);
    } else {
      messages.push_back(std::move(message));
    }
  }
  Let(gate_.Expire(cycle_start_ns_), messages);
  expired_ = gate_.expired();
  IssueControlOps(process_set, messages);
}

// --- hook fuse
// --------------------------------------------------------------------------------------------------------

void Merger::Fuse(common::Controller& controller, std::deque<common::Response>& responses, common::ResponseList& list) {
  std::deque<common::Response> rest;
  std::vector<std::pair<int64_t, common::Response>> planned;  // with the number of the group
  std::vector<std::pair<int64_t, common::Response>> ops;      // control operations, with their numbers
  for (auto& response : responses) {
    const auto& name = response.tensor_names()[0];
    int64_t group = -1;
    if (response.response_type() == common::Response::ALLREDUCE) {
      if (IsControlOp(name)) {
        const ControlOp op = ControlOpOf(name);
        ops.emplace_back(op.number * size_ + op.asker, std::move(response));
        continue;
      }
      group = active_.GroupOf(monitor_.NumberOf(name));
    }
    if (group >= 0) {
      planned.emplace_back(group, std::move(response));
    } else {
      rest.push_back(std::move(response));
    }
  }
  const auto add_all = [&](std::vector<std::pair<int64_t, common::Response>>& all) {
    // By name within a group: a place in a message decides in which order ranks are added up, and is to be the same in
    // every run.
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
      return std::tie(a.first, a.second.tensor_names()[0]) < std::tie(b.first, b.second.tensor_names()[0]);
    });
    for (size_t n = 0; n < all.size();) {
      std::vector<common::Response> group;
      const int64_t number = all[n].first;
      for (; n < all.size() && all[n].first == number; ++n) {
        group.push_back(std::move(all[n].second));
      }
      Pack(list, {LimitBytes(controller)}, std::move(group));
    }
  };
  add_all(ops);
  add_all(planned);
  responses.swap(rest);
}

// --- hooks before_execute and after_execute
// --------------------------------------------------------------------------------------
void Merger::AfterExecute(const Executed& executed) {
  if (OfControlOp(executed.response)) {
    joined_.Return(executed.process_set);
    cycle_start_ns_ = 0;
    const auto kind = ControlOpOf(executed.response.tensor_names()[0]).kind;
    if (SweepOf(kind) >= 0 && kind != ControlKind::kBurst) {
      reducer_.Settle();  // no other message beside it
    }
    return;
  }
  if (!watching_) {
    return;
  }
  if (cycle_start_ns_ != 0) {
    monitor_.Coordinated(cycle_start_ns_, executed.start_ns);
    cycle_start_ns_ = 0;
  }
  for (const auto& name : executed.response.tensor_names()) {
    const int32_t number = monitor_.NumberOf(name);
    if (number >= 0) {
      gate_.Performed(number);
    }
  }
}

void Merger::Follow(const core::agreed::RoundEnded& at, MergePlan plan) {
  ++follows_;
  active_ = watching_ ? ActivePlan(plan, monitor_.tensors()) : ActivePlan();
  // What is held now goes with the next cycle's messages.
  const auto released = gate_.Follow(active_.group_of(), monitor_.ReducedInRunningStep(),
                                     monitor_.CameBeforeRunningStep(), active_.timeout_ns());
  for (const int32_t number : released) {
    state_->process_set_table.Get(process_set_id_).tensor_queue.PushMessageToQueue(held_.at(number));
    held_.erase(number);
  }
  if (!released.empty()) {
    NotifyWorkSubmitted();
  }
  monitor_.Restart(at);
  ChooseCollectives(at);
  std::lock_guard<std::mutex> lock(mutex_);
  plan_ = std::move(plan);
}

// Where all ranks want armed steps, messages of the plan go by the fastest collective whether they are armed or not:
// the first of a step, those of steps that are compared, and that of a plan of one.
void Merger::ChooseCollectives(const core::agreed::RoundEnded& /*at*/) {
  reducer_.GoAsChosen(process_set_id_, fast_);
  fast_.clear();
  if (armed_ && process_set_id_ == 0) {
    const auto tensors = monitor_.tensors();
    for (size_t n = 0; n < tensors.size(); ++n) {
      if (active_.GroupOf(static_cast<int32_t>(n)) >= 0) {
        fast_.insert(tensors[n].name);
      }
    }
  }
  reducer_.GoFastest(process_set_id_, fast_);
}

const MergeGroup* Merger::GroupOf(const std::string& name) const {
  return active_.group_of().empty() ? nullptr : active_.Group(monitor_.NumberOf(name));
}

int32_t Merger::GroupNumberOf(const std::string& name) const {
  return active_.group_of().empty() ? -1 : active_.GroupOf(monitor_.NumberOf(name));
}

int32_t Merger::PartsOf(const std::string& name) const {
  return active_.group_of().empty() ? 1 : active_.PartsOf(monitor_.NumberOf(name));
}

Followed Merger::followed() const {
  const auto& groups = active_.group_of();
  const std::string_view bytes(reinterpret_cast<const char*>(groups.data()), groups.size() * sizeof(groups[0]));
  return {follows_, active_.groups(), std::hash<std::string_view>()(bytes), active_.timeout_ns(), armed_};
}

int64_t Merger::LimitBytes(common::Controller& controller) const {
  const int64_t own_bytes = controller.TensorFusionThresholdBytes();
  // A rank has one buffer for all its process sets; only the plan of all ranks may ask for a larger one.
  return process_set_id_ == 0 ? std::max(active_.largest_group_bytes(), own_bytes) : own_bytes;
}

// --- any thread
// -------------------------------------------------------------------------------------------------------

Agreement Merger::agreement() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return agreement_;
}

MergePlan Merger::plan() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return plan_;
}

Answer Merger::answer(ControlKind kind) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = answers_.find(static_cast<int32_t>(kind));
  return found == answers_.end() ? Answer{} : found->second;
}

void Merger::Performed(const Executed& executed) {
  const auto& response = executed.response;
  if (OfControlOp(response)) {
    Ended(executed);
    return;
  }
  if (!watching_) {
    return;
  }
  const bool fine = executed.status.ok() || executed.status.in_progress();
  if (response.response_type() == common::Response::ALLREDUCE && fine) {
    if (executed.armed) {
      monitor_.On(MessageOf(response));
    }
    monitor_.On(core::local::MessageEnded{response.tensor_names(), std::max(executed.start_ns, performed_ns_),
                                          executed.end_ns});
  }
  performed_ns_ = executed.end_ns;
}

}  // namespace horovod::paceline
