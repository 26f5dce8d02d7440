#include "bridge/partial/partials.h"

#include <algorithm>
#include <tuple>

#include "bridge/fusion/calls.h"
#include "bridge/fusion/packing.h"
#include "bridge/hooks.h"

namespace horovod {
namespace paceline {

namespace {

// A full operation that takes longer than this holds its rank up: no partial round waits for that rank meanwhile.
constexpr int64_t kPatience_ns = 50'000'000;

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

Partials::Partials() : holdups_(kPatience_ns) {}

void Partials::Reset() {
  std::lock_guard<std::mutex> lock(mutex_);
  channels_.clear();
  restored_.clear();
  sets_.clear();
  holdups_ = ::paceline::core::Holdups(kPatience_ns);
  set_ = nullptr;
  used_ = false;
}

std::shared_ptr<PartialChannel> Partials::Get(const std::string& name, int32_t process_set_id) const {
  const auto set = channels_.find(process_set_id);
  if (set == channels_.end()) {
    return nullptr;
  }
  const auto found = set->second.find(name);
  return found == set->second.end() ? nullptr : found->second;
}

std::shared_ptr<PartialChannel> Partials::Find(const std::string& name, int32_t process_set_id) const {
  if (!used_) {
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  return Get(name, process_set_id);
}

common::Status Partials::Call(common::ProcessSet& process_set, const PartialMark& mark, const Reducing& reducing,
                              const std::shared_ptr<common::Tensor>& tensor,
                              const std::shared_ptr<common::Tensor>& output, common::StatusCallback callback) {
  const auto& controller = process_set.controller;
  const int32_t id = reducing.process_set_id;
  std::unique_lock<std::mutex> lock(mutex_);
  auto channel = Get(mark.unmarked, id);
  if (channel != nullptr && channel->Serves(*controller)) {
    lock.unlock();
    if (!channel->mark().SameRules(mark)) {
      return common::Status::InvalidArgument("Partial allreduce of " + mark.unmarked +
                                             ": expected the quorum, max_lag and missed of the calls before, found "
                                             "others. Keep to one choice for each name.");
    }
    return channel->Call(process_set, mark, reducing, tensor, output, std::move(callback));
  }
  // Whoever looks the name up, waits for the lock: the name is partial once Horovod has taken the call, never before.
  channel = std::make_shared<PartialChannel>(mark, id, controller);
  const Key key{id, mark.unmarked};
  const auto state = restored_.find(key);
  if (state != restored_.end()) {
    channel->Restore(state->second);
  }
  used_ = true;
  auto status = channel->Call(process_set, mark, reducing, tensor, output, std::move(callback));
  if (status.ok()) {
    channels_[id][mark.unmarked] = channel;
    restored_.erase(key);
  }
  return status;
}

std::vector<::paceline::core::RoundState::Counters> Partials::Counters(int32_t process_set_id) const {
  std::vector<::paceline::core::RoundState::Counters> all;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto set = channels_.find(process_set_id);
  if (set != channels_.end()) {
    for (const auto& [name, channel] : set->second) {
      all.push_back(channel->counters());
    }
  }
  return all;
}

bool Partials::Restore(const std::string& name, int32_t process_set_id, PartialState state) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto channel = Get(name, process_set_id);
  if (channel != nullptr) {
    return channel->Restore(state);
  }
  restored_[{process_set_id, name}] = std::move(state);
  return true;
}

void Partials::Cycle(int32_t process_set_id, common::ProcessSet& process_set, common::Timeline& timeline) {
  current_ = process_set_id;
  auto found = sets_.find(process_set_id);
  const auto& controller = process_set.controller;
  if (found != sets_.end() && found->second.controller.lock() != controller) {
    // The id has gone to another process set.
    sets_.erase(found);
    found = sets_.end();
    holdups_.Forget(process_set_id);
    std::lock_guard<std::mutex> lock(mutex_);
    auto& channels = channels_[process_set_id];
    for (auto one = channels.begin(); one != channels.end();) {
      one = one->second->Serves(*controller) ? std::next(one) : channels.erase(one);
    }
  }
  if (found == sets_.end()) {
    const auto find = [this, process_set_id](const std::string& name) { return Find(name, process_set_id); };
    found = sets_.try_emplace(process_set_id, controller, find).first;
  }
  set_ = &found->second;
  timeline_ = &timeline;
  set_->joined.Return(process_set);
}

void Partials::Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  if (!used_) {
    return;
  }
  const auto now_ns = Nanoseconds(Clock::now());
  if (!set_->followed) {
    set_->followed = true;
    for (const auto& name : process_set.tensor_queue.Handed()) {
      Began(name, Find(name, current_) != nullptr, now_ns);
    }
  }
  std::deque<common::Request> popped;
  popped.swap(messages);
  for (auto& message : popped) {
    const auto& name = message.tensor_name();
    const bool note = IsNote(name);
    const auto channel = note ? Find(NotedName(name), current_) : Find(name, current_);
    if (channel != nullptr && channel->Stale(message)) {
      continue;
    }
    if (channel != nullptr) {
      set_->used = true;
    }
    if (!note) {
      Began(OutstandingName(message), channel != nullptr, now_ns);
    }
    messages.push_back(std::move(message));
  }
  if (!set_->used) {
    return;
  }
  if (set_->coordinator.waiting()) {
    messages.push_back(NoteAbout("", PartialNews::kLook, 0, process_set.controller->GetRank()));
  }
  TellAbsence(now_ns, process_set, messages);
}

void Partials::Began(const std::string& name, bool partial, int64_t now_ns) {
  if (!IsCall(name)) {
    holdups_.Began(current_, name, partial, now_ns);
  }
}

void Partials::TellAbsence(int64_t now_ns, common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  const bool absent = holdups_.Absent(current_, now_ns);
  if (absent != set_->absent) {
    set_->absent = absent;
    messages.push_back(
        NoteAbout("", absent ? PartialNews::kAbsent : PartialNews::kPresent, 0, process_set.controller->GetRank()));
  }
}

bool Partials::Noted(const common::Request& request) {
  if (!IsNote(request.tensor_name())) {
    return false;
  }
  set_->coordinator.Noted(request);
  return true;
}

std::vector<std::string> Partials::Counted(const Group& group) {
  return used_ ? set_->coordinator.Ready(group, Nanoseconds(Clock::now())) : std::vector<std::string>{};
}

void Partials::Fuse(common::Controller& controller, std::deque<common::Response>& responses, common::ResponseList& list,
                    const Group& group) const {
  if (!used_) {
    return;
  }
  // By the first name of the group, then by their own: places in a message do not depend on who voted first. Tensors
  // without a group come first.
  std::vector<std::tuple<std::string, std::string, common::Response>> ours;
  std::deque<common::Response> rest;
  for (auto& response : responses) {
    if (!Has(response)) {
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
    const auto* together = group(name);
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
    Pack(list, controller, std::move(message));
  }
  responses.swap(rest);
}

bool Partials::Has(const common::Response& response) const {
  return used_ && !response.tensor_names().empty() && Find(response.tensor_names()[0], current_) != nullptr;
}

void Partials::Entries(const common::Response& response, common::ProcessSet& process_set) {
  if (!Has(response)) {
    return;
  }
  for (const auto& name : response.tensor_names()) {
    set_->coordinator.Sent(response, name);
    const auto channel = Find(name, current_);
    if (channel != nullptr) {
      channel->Begin(process_set.tensor_queue, *timeline_);
    }
  }
  set_->joined.Leave(process_set);
}

void Partials::Performed(const common::Response& response, common::ProcessSet& process_set) {
  set_->joined.Return(process_set);
  if (!used_) {
    return;
  }
  if (response.response_type() == common::Response::BARRIER) {
    holdups_.Ended(current_, BARRIER_TENSOR_NAME);
  }
  for (const auto& name : response.tensor_names()) {
    holdups_.Ended(current_, name);
  }
}

}  // namespace paceline
}  // namespace horovod
