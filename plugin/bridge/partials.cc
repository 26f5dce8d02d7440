#include "bridge/partials.h"

#include <algorithm>
#include <tuple>

#include "bridge/calls.h"
#include "bridge/hooks.h"
#include "bridge/packing.h"

namespace horovod {
namespace paceline {

namespace {

// A full operation that takes longer than this holds its rank up: no partial round waits for that rank meanwhile.
constexpr int64_t kPatience_ns = 50'000'000;
// Requests for barriers have names of their own, responses to them none.
constexpr const char* kBarrier = "paceline.barrier";

std::string OutstandingName(const common::Request& request) {
  switch (request.request_type()) {
    case common::Request::BARRIER:
      return kBarrier;
    case common::Request::JOIN:
      return JOIN_TENSOR_NAME;
    default:
      return request.tensor_name();
  }
}

}  // namespace

void Partials::Reset() {
  std::lock_guard<std::mutex> lock(mutex_);
  channels_.clear();
  restored_.clear();
  sets_.clear();
  set_ = nullptr;
  used_ = false;
}

std::shared_ptr<PartialChannel> Partials::Of(const PartialMark& mark, int32_t process_set_id,
                                             const std::shared_ptr<common::Controller>& controller) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Key key{process_set_id, mark.unmarked};
  auto& channel = channels_[key];
  if (channel == nullptr || !channel->Serves(*controller)) {
    channel = std::make_shared<PartialChannel>(mark, process_set_id, controller);
    const auto state = restored_.find(key);
    if (state != restored_.end()) {
      channel->Restore(state->second);
      restored_.erase(state);
    }
    used_ = true;
  }
  return channel->mark().SameRules(mark) ? channel : nullptr;
}

std::shared_ptr<PartialChannel> Partials::Find(const std::string& name, int32_t process_set_id) const {
  if (!used_) {
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = channels_.find({process_set_id, name});
  return found == channels_.end() ? nullptr : found->second;
}

std::vector<::paceline::core::RoundState::Counters> Partials::Counters(int32_t process_set_id) const {
  std::vector<::paceline::core::RoundState::Counters> all;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, channel] : channels_) {
    if (key.first == process_set_id) {
      all.push_back(channel->counters());
    }
  }
  return all;
}

bool Partials::Restore(const std::string& name, int32_t process_set_id, PartialState state) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Key key{process_set_id, name};
  const auto found = channels_.find(key);
  if (found != channels_.end()) {
    return found->second->Restore(state);
  }
  restored_[key] = std::move(state);
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
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto one = channels_.begin(); one != channels_.end();) {
      const bool gone = one->first.first == process_set_id && !one->second->Serves(*controller);
      one = gone ? channels_.erase(one) : std::next(one);
    }
  }
  if (found == sets_.end()) {
    const auto find = [this, process_set_id](const std::string& name) { return Find(name, process_set_id); };
    found = sets_.try_emplace(process_set_id, find).first;
    found->second.controller = controller;
  }
  set_ = &found->second;
  timeline_ = &timeline;
  set_->joined.Return(process_set);
}

void Partials::Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  if (!used_) {
    return;
  }
  std::deque<common::Request> popped;
  popped.swap(messages);
  for (auto& message : popped) {
    const auto& name = message.tensor_name();
    const auto channel = Find(IsNote(name) ? NotedName(name) : name, current_);
    if (channel == nullptr) {
      if (!IsCall(name)) {
        set_->outstanding.emplace(OutstandingName(message), Nanoseconds(Clock::now()));
      }
      messages.push_back(std::move(message));
    } else if (!channel->Stale(message)) {
      messages.push_back(std::move(message));
    }
  }
  if (set_->coordinator.waiting()) {
    messages.push_back(PartialChannel::NoteAbout("", PartialNews::kLook, 0, process_set.controller->GetRank()));
  }
  TellAbsence(process_set, messages);
}

void Partials::TellAbsence(common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  const auto now_ns = Nanoseconds(Clock::now());
  const bool absent = std::any_of(set_->outstanding.begin(), set_->outstanding.end(),
                                  [&](const auto& one) { return now_ns - one.second > kPatience_ns; });
  if (!absent && !set_->absent) {
    return;
  }
  set_->absent = absent;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, channel] : channels_) {
    if (key.first == current_ && channel->told_absent != absent) {
      channel->told_absent = absent;
      messages.push_back(
          channel->Note(absent ? PartialNews::kAbsent : PartialNews::kPresent, 0, process_set.controller->GetRank()));
    }
  }
}

bool Partials::Counts(const common::Request& request, int32_t size) { return set_->coordinator.Counts(request, size); }

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
  if (!used_) {
    return;
  }
  set_->joined.Return(process_set);
  if (response.response_type() == common::Response::BARRIER) {
    set_->outstanding.erase(kBarrier);
  }
  for (const auto& name : response.tensor_names()) {
    set_->outstanding.erase(name);
  }
}

}  // namespace paceline
}  // namespace horovod
