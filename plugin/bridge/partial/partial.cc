#include "bridge/partial/partial.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "bridge/packing.h"
#include "bridge/participants.h"
#include "bridge/process_sets_change.h"
#include "bridge/reserved_names.h"
#include "bridge/waking.h"
#include "horovod/common/logging.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

namespace {

// A full operation that takes longer than this holds its rank up: no partial round waits for that rank meanwhile.
constexpr int64_t kTimeout_ns = 50'000'000;
// Of the numbers of a registration.
constexpr double kMostNumber = 0x1p31;

// As in Horovod's table; responses to barriers have none.
std::string OutstandingName(const common::Request& request) {
  switch (request.request_type()) {
    case common::Request::BARRIER:
      return BARRIER_TENSOR_NAME;
    case common::Request::JOIN:
      return JOIN_TENSOR_NAME;
    default:
      return request.tensor_name();
  }
}

}  // namespace

Partial::Partial(Operations& operations, const MessagePlan& plan)
    : operations_(operations), plan_(plan), holdups_(kTimeout_ns) {}

std::shared_ptr<PartialChannel> Partial::Find(int32_t process_set_id, const std::string& name) const {
  const auto kept = used() ? operations_.Kept<PartialOperation>(process_set_id, name) : nullptr;
  return kept == nullptr ? nullptr : kept->Channel();
}

template <typename... ProcessSet>
std::vector<std::shared_ptr<PartialChannel>> Partial::Channels(ProcessSet... process_set_id) const {
  std::vector<std::shared_ptr<PartialChannel>> all;
  for (const auto& kept : operations_.AllKept<PartialOperation>(process_set_id...)) {
    if (auto channel = kept->Channel()) {
      all.push_back(std::move(channel));
    }
  }
  return all;
}

void Partial::BeginWorld() {
  Exchange::BeginWorld();
  memory_->Clear();
  sets_.clear();
  {
    const std::lock_guard<std::mutex> lock(lateness_mutex_);
    lateness_.clear();
  }
  holdups_ = ::paceline::core::Holdups(kTimeout_ns);
  set_ = nullptr;
}

void Partial::EndProcessSet(int32_t process_set_id) {
  sets_.erase(process_set_id);
  set_ = nullptr;  // until the next cycle
  holdups_.Forget(process_set_id);
}

std::shared_ptr<const ExchangeSettings> Partial::Parse(const std::vector<double>& settings,
                                                       std::string& expected) const {
  expected =
      "six whole numbers (votes of a quorum, 0 for a drawn rank, -1 for half of the ranks; seed; max_lag; latest, "
      "counted and weighted, 0 or 1)";
  const bool whole = std::all_of(settings.begin(), settings.end(), [](double one) {
    return one == std::floor(one) && one >= PartialSettings::kMajority && one < kMostNumber;
  });
  if (settings.size() != 6 || !whole ||
      std::any_of(settings.begin() + 1, settings.end(), [](double one) { return one < 0; })) {
    return nullptr;
  }
  auto parsed = std::make_shared<PartialSettings>();
  parsed->quorum = static_cast<int32_t>(settings[0]);
  parsed->seed = static_cast<uint64_t>(settings[1]);
  parsed->max_lag = static_cast<int64_t>(settings[2]);
  parsed->latest = settings[3] != 0;
  parsed->counted = settings[4] != 0;
  parsed->weighted = settings[5] != 0;
  return parsed;
}

common::Status Partial::Call(ExchangeCall call) {
  const auto& settings = static_cast<const PartialSettings&>(call.settings);
  const int32_t id = call.reducing.process_set_id;
  const auto& controller = call.process_set.controller;
  const auto& name = call.operation.name;
  const auto own = call.operation.KeptOrMade<PartialOperation>();
  if (own == nullptr) {
    return Anothers(Title(name));
  }
  Use();
  NotifyArrived({call.tensor}, {name}, id);
  if (call.reducing.op == common::ReduceOp::AVERAGE) {  // by the number of all ranks, whoever contributes
    call.reducing.op = common::ReduceOp::SUM;
    call.reducing.postscale /= controller->GetSize();
  }
  std::unique_lock<std::mutex> lock(own->mutex);
  const bool flush = std::exchange(own->flush_next, false);
  const auto channel = own->channel;
  if (channel == nullptr) {
    // Whoever looks the name up, waits: it is partial once Horovod has taken the first call, never before.
    auto made = std::make_shared<PartialChannel>(name, settings, id, controller, memory_);
    if (own->restored != nullptr) {
      made->Restore(*own->restored);
    }
    auto status = made->Call(std::move(call), flush);
    if (status.ok()) {
      own->channel = std::move(made);
      own->restored.reset();
    }
    return status;
  }
  lock.unlock();
  if (!channel->settings().Same(settings)) {
    return common::Status::InvalidArgument(Title(name) + ": expected the quorum, max_lag and missed of the calls " +
                                           "before, found others. Keep to one choice for each name.");
  }
  return channel->Call(std::move(call), flush);
}

bool Partial::Has(const Operation& operation) const {
  const auto own = operation.Kept<PartialOperation>();
  if (own == nullptr) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(own->mutex);
  return own->channel != nullptr || own->restored != nullptr;
}

// Registered names do not come here.
bool Partial::Enqueue(AllreduceCall& call, common::Status& status) {
  for (const auto& name : call.names) {
    if (Find(call.reducing.process_set_id, name) != nullptr) {
      status = common::Status::InvalidArgument("Allreduce of " + name +
                                               ": the calls of this name before were partial. Give it another name.");
      return true;
    }
  }
  return false;
}

void Partial::FlushNext(int32_t process_set_id, const std::string& name) {
  if (const auto own = operations_.At(process_set_id, name)->KeptOrMade<PartialOperation>(); own != nullptr) {
    const std::lock_guard<std::mutex> lock(own->mutex);
    own->flush_next = true;
  }
}

std::vector<::paceline::core::RoundState::Counters> Partial::Counters(int32_t process_set_id) const {
  std::vector<::paceline::core::RoundState::Counters> all;
  for (const auto& channel : Channels(process_set_id)) {
    all.push_back(channel->counters());
  }
  return all;
}

int64_t Partial::Updates() const {
  int64_t most = 0;
  for (const auto& channel : Channels()) {
    const auto counters = channel->counters();
    most = std::max(most, counters.on_time + counters.late);
  }
  return most;
}

void Partial::FlushAll() {
  for (const auto& channel : Channels()) {
    channel->Flush();
  }
}

bool Partial::Restore(int32_t process_set_id, const std::string& name, PartialState state) {
  const auto own = operations_.At(process_set_id, name)->KeptOrMade<PartialOperation>();
  if (own == nullptr) {
    return false;
  }
  const std::lock_guard<std::mutex> lock(own->mutex);
  if (own->channel != nullptr) {
    return own->channel->Restore(state);
  }
  own->restored = std::make_shared<const PartialState>(std::move(state));
  return true;
}

void Partial::Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) {
  current_ = process_set_id;
  auto found = sets_.find(process_set_id);
  if (found == sets_.end()) {
    const auto find = [this, process_set_id](const std::string& name) { return Find(process_set_id, name); };
    found = sets_.try_emplace(process_set_id, process_set.controller->GetSize(), find).first;
    const std::lock_guard<std::mutex> lock(lateness_mutex_);
    lateness_[process_set_id] = found->second.coordinator.lateness();
  }
  set_ = &found->second;
  timeline_ = &state.timeline;
  set_->joined.Return(process_set);
}

void Partial::Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  if (!used()) {
    return;
  }
  const auto now_ns = Nanoseconds(Clock::now());
  FollowProcessSets(now_ns);
  if (!set_->followed) {
    set_->followed = true;
    for (const auto& name : process_set.tensor_queue.Submitted()) {
      Began(name, Find(current_, name) != nullptr, now_ns);
    }
  }
  std::deque<common::Request> popped;
  popped.swap(messages);
  for (auto& message : popped) {
    const auto& name = message.tensor_name();
    const bool note = IsNote(name);
    const auto channel = note ? Find(current_, NotedName(name)) : Find(current_, name);
    if (channel != nullptr && channel->Stale(message)) {
      continue;
    }
    if (channel != nullptr) {
      set_->used = true;
    }
    if (!note) {
      // A first round needs all ranks, as a full operation does.
      Began(OutstandingName(message), channel != nullptr && channel->HasRun(), now_ns);
    }
    messages.push_back(std::move(message));
  }
  if (!set_->used) {
    return;
  }
  if (set_->coordinator.waiting() || set_->coordinator.StandsStill(now_ns)) {
    messages.push_back(NoteAbout("", PartialNews::kLook, 0, process_set.controller->GetRank()));
  }
  ReportAbsence(now_ns, process_set, messages);
}

Clock::duration Partial::SleepLimit() {
  const bool waits = used() && (!holdups_.none() || std::any_of(sets_.begin(), sets_.end(), [](const auto& set) {
                       return set.second.coordinator.waiting();
                     }));
  return waits ? Clock::duration::zero() : Clock::duration::max();
}

void Partial::Began(const std::string& name, bool partial, int64_t now_ns) {
  if (!Begins(name, kControlNames)) {
    holdups_.Began(current_, name, partial, now_ns);
  }
}

// No operation says that a thread waits for all ranks to add or remove a process set.
void Partial::FollowProcessSets(int64_t now_ns) {
  if (ProcessSetsChange::waited_for()) {
    holdups_.Began(0, std::string(kProcessSetsName), false, now_ns);
  } else {
    holdups_.Ended(0, std::string(kProcessSetsName));
  }
}

void Partial::ReportAbsence(int64_t now_ns, common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  const bool absent = holdups_.Absent(current_, now_ns);
  if (absent != set_->absent) {
    set_->absent = absent;
    messages.push_back(
        NoteAbout("", absent ? PartialNews::kAbsent : PartialNews::kPresent, 0, process_set.controller->GetRank()));
  }
}

bool Partial::TakeControlRequest(const common::Request& request) {
  if (request.request_type() != common::Request::ALLREDUCE || !IsNote(request.tensor_name())) {
    return false;
  }
  set_->coordinator.TakeNote(request);
  return true;
}

bool Partial::OverrideReady(const common::Request& request, int /*count*/, bool ready) {
  return !set_->coordinator.Counts(request) && ready;
}

void Partial::AddReadyNames(std::vector<std::string>& names) {
  if (!used()) {
    return;
  }
  const auto ready = set_->coordinator.Ready([this](const std::string& name) { return plan_.GroupOf(name); },
                                             Nanoseconds(Clock::now()));
  names.insert(names.end(), ready.begin(), ready.end());
  ReportStandstill();
}

void Partial::ReportStandstill() const {
  const auto& begun = set_->coordinator.begun_by_standstill();
  if (!begun.empty()) {
    using namespace ::horovod::common;  // the LOG macro names Horovod's classes without their namespace
    LOG(WARNING) << "Paceline: " << core::Standstill::Text(begun, OfSet());
  }
}

bool Partial::OwnsReadiness(const std::string& name) { return used() && set_->coordinator.Has(name); }

void Partial::Fuse(common::Controller& controller, std::deque<common::Response>& responses,
                   common::ResponseList& list) {
  if (!used()) {
    return;
  }
  // By the first name of the group, then by their own: places in a message do not depend on who voted first. Tensors
  // without a group come first.
  std::vector<std::tuple<std::string, std::string, common::Response>> ours;
  std::deque<common::Response> rest;
  for (auto& response : responses) {
    if (!Owns(response)) {
      rest.push_back(std::move(response));
      continue;
    }
    const auto& name = response.tensor_names()[0];
    if (response.response_type() != common::Response::ALLREDUCE) {
      const auto error = set_->coordinator.Error(name);
      if (!error.empty()) {
        response.set_error_message(error);
      }
      rest.push_back(std::move(response));
      continue;
    }
    // Horovod knows the devices of those that voted.
    response.set_devices(std::vector<int32_t>(response.devices().size(), CPU_DEVICE_ID));
    const auto* together = plan_.GroupOf(name);
    const std::string first = together == nullptr ? "" : together->names.front();
    ours.emplace_back(first, std::string(name), std::move(response));
  }
  std::sort(ours.begin(), ours.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  for (size_t n = 0; n < ours.size();) {
    const auto& leader = std::get<0>(ours[n]);
    std::vector<common::Response> message;
    for (; n < ours.size() && std::get<0>(ours[n]) == leader; ++n) {
      message.push_back(std::move(std::get<2>(ours[n])));
    }
    PackLimits limits = {plan_.LimitBytes(controller)};
    if (leader.empty()) {
      limits.alone_bytes = kAlone_bytes;
    }
    Pack(list, limits, std::move(message));
  }
  responses.swap(rest);
}

bool Partial::Owns(const common::Response& response) const {
  return used() && !response.tensor_names().empty() && Find(current_, response.tensor_names()[0]) != nullptr;
}

void Partial::BeforeExecute(common::ProcessSet& process_set, const common::Response& response) {
  if (!Owns(response)) {
    return;
  }
  for (const auto& name : response.tensor_names()) {
    set_->coordinator.Sent(response, name);
    const auto channel = Find(current_, name);
    if (channel != nullptr) {
      channel->Begin(process_set.tensor_queue, *timeline_);
    }
  }
  set_->joined.Leave(process_set);
  ReportStraggler(process_set);
}

std::string Partial::OfSet() const { return current_ == 0 ? "" : " of process set " + std::to_string(current_); }

core::Lateness::Totals Partial::Lateness(int32_t process_set_id) const {
  const std::lock_guard<std::mutex> lock(lateness_mutex_);
  const auto found = lateness_.find(process_set_id);
  return found == lateness_.end() ? core::Lateness::Totals() : found->second->totals();
}

void Partial::ReportStraggler(common::ProcessSet& process_set) {
  const auto found = set_->coordinator.Straggler(Nanoseconds(Clock::now()));
  if (!found) {
    return;
  }
  constexpr double kMillisecond_ns = 1e6;
  using namespace ::horovod::common;  // the LOG macro names Horovod's classes without their namespace
  LOG(WARNING, process_set.controller->GetRank())
      << "Paceline: rank " << found->rank << OfSet() << " was late in " << found->late << " of its last "
      << found->calls << " steps, by " << std::llround(static_cast<double>(found->mean_late_ns) / kMillisecond_ns)
      << " ms on average (a step takes " << std::llround(static_cast<double>(found->step_ns) / kMillisecond_ns)
      << " ms). A rank that is always late trains on gradients that are used late: see hvd.exchange_stats().";
}

void Partial::AfterExecute(const Executed& executed) { set_->joined.Return(executed.process_set); }

void Partial::Performed(const Executed& executed) {
  if (!used()) {
    return;
  }
  if (executed.response.response_type() == common::Response::BARRIER) {
    holdups_.Ended(current_, BARRIER_TENSOR_NAME);
  }
  for (const auto& name : executed.response.tensor_names()) {
    holdups_.Ended(current_, name);
  }
}

}  // namespace horovod::paceline
