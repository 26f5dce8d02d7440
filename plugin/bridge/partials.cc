#include "bridge/partials.h"

#include <algorithm>

#include "bridge/calls.h"
#include "bridge/hooks.h"
#include "bridge/packing.h"

namespace horovod {
namespace paceline {

namespace {

// A full operation that takes longer than this holds its rank up: no partial round waits for that rank meanwhile.
constexpr int64_t kPatience_ns = 50'000'000;
// Responses to barriers name no tensor.
constexpr const char* kBarrier = "paceline.barrier";

}  // namespace

void Partials::Reset() {
  std::lock_guard<std::mutex> lock(mutex_);
  channels_.clear();
  counts_.clear();
  early_.clear();
  outstanding_.clear();
  absent_.clear();
  used_ = false;
}

std::shared_ptr<PartialChannel> Partials::Of(const PartialMark& mark, int32_t process_set_id, int32_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& channel = channels_[{process_set_id, mark.unmarked}];
  if (channel == nullptr) {
    channel = std::make_shared<PartialChannel>(mark, process_set_id, size);
    used_ = true;
  }
  const auto& first = channel->mark();
  const bool same = first.rule.count == mark.rule.count && first.rule.seed == mark.rule.seed &&
                    first.rule.max_lag == mark.rule.max_lag && first.latest == mark.latest &&
                    first.counted == mark.counted;
  return same ? channel : nullptr;
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
      if (!IsCall(name) && message.request_type() != common::Request::JOIN) {
        const bool barrier = message.request_type() == common::Request::BARRIER;
        outstanding_[current_].emplace(barrier ? kBarrier : name, Nanoseconds(Clock::now()));
      }
      messages.push_back(std::move(message));
    } else if (!channel->Stale(message)) {
      messages.push_back(std::move(message));
    }
  }
  TellAbsence(process_set, messages);
}

void Partials::TellAbsence(common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  const auto now_ns = Nanoseconds(Clock::now());
  const auto& outstanding = outstanding_[current_];
  const bool absent = std::any_of(outstanding.begin(), outstanding.end(),
                                  [&](const auto& one) { return now_ns - one.second > kPatience_ns; });
  auto& told = absent_[current_];
  if (!absent && !told) {
    return;
  }
  told = absent;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, channel] : channels_) {
    if (key.first == current_ && channel->told_absent != absent) {
      channel->told_absent = absent;
      messages.push_back(
          channel->Note(absent ? PartialNews::kAbsent : PartialNews::kPresent, 0, process_set.controller->GetRank()));
    }
  }
}

void Partials::Take(Count& count, const common::Request& request, int64_t round) {
  const int32_t rank = request.request_rank();
  count.changed = true;
  switch (NewsOf(request)) {
    case PartialNews::kVote:
      count.votes.Vote(rank);
      break;
    case PartialNews::kFlush:
      count.votes.Flush(rank);
      break;
    case PartialNews::kArrived:
      count.votes.Arrived(rank, round);
      break;
    case PartialNews::kAbsent:
      count.votes.Absent(rank);
      break;
    case PartialNews::kPresent:
      count.votes.Present(rank);
      break;
  }
}

bool Partials::Counts(const common::Request& request, int32_t size) {
  if (request.request_type() != common::Request::ALLREDUCE || request.root_rank() == 0) {
    return false;
  }
  const Key key{current_, request.tensor_name()};
  auto found = counts_.find(key);
  if (found == counts_.end()) {
    const auto channel = Find(request.tensor_name(), current_);
    if (channel == nullptr) {
      // Other ranks may come before this one, whose first call says by which rule. Round 0 waits for it anyway.
      early_[key].push_back(request);
      return true;
    }
    found = counts_.emplace(key, Count{::paceline::core::Votes(size, channel->mark().rule)}).first;
    for (const auto& before : early_[key]) {
      Take(found->second, before, 0);
    }
    early_.erase(key);
  }
  Take(found->second, request, 0);
  return true;
}

bool Partials::Noted(const common::Request& request) {
  if (!used_ || !IsNote(request.tensor_name())) {
    return false;
  }
  // Without a vote so far there is nobody to wait for this rank.
  const auto found = counts_.find({current_, NotedName(request.tensor_name())});
  if (found != counts_.end()) {
    Take(found->second, request, request.tensor_shape()[0]);
  }
  return true;
}

std::vector<std::string> Partials::Counted() {
  std::vector<std::string> ready;
  if (!used_) {
    return ready;
  }
  for (auto& [key, count] : counts_) {
    if (key.first == current_ && count.changed && count.votes.ready() && !count.announced) {
      count.announced = true;
      ready.push_back(key.second);
    }
    count.changed = false;
  }
  return ready;
}

void Partials::Fuse(common::Controller& controller, std::deque<common::Response>& responses,
                    common::ResponseList& list) const {
  if (!used_) {
    return;
  }
  std::vector<common::Response> ours;
  std::deque<common::Response> rest;
  for (auto& response : responses) {
    if (response.response_type() != common::Response::ALLREDUCE || !Has(response)) {
      rest.push_back(std::move(response));
      continue;
    }
    // Horovod knows the devices of those that voted.
    response.set_devices(std::vector<int32_t>(response.devices().size(), CPU_DEVICE_ID));
    ours.push_back(std::move(response));
  }
  // By name, so that places in a message do not depend on who voted first.
  std::sort(ours.begin(), ours.end(),
            [](const auto& a, const auto& b) { return a.tensor_names()[0] < b.tensor_names()[0]; });
  Pack(list, controller, std::move(ours));
  responses.swap(rest);
}

bool Partials::Has(const common::Response& response) const {
  return used_ && !response.tensor_names().empty() && Find(response.tensor_names()[0], current_) != nullptr;
}

void Partials::Entries(const common::Response& response, common::ProcessSet& process_set) {
  if (!used_) {
    return;
  }
  for (const auto& name : response.tensor_names()) {
    const auto channel = Find(name, current_);
    if (channel == nullptr) {
      continue;
    }
    const auto count = counts_.find({current_, name});
    if (count != counts_.end() && response.response_type() == common::Response::ERROR) {
      counts_.erase(count);
    } else if (count != counts_.end()) {
      count->second.votes.Executed();
      count->second.announced = false;
    }
    channel->Begin(process_set.tensor_queue);
  }
}

void Partials::Performed(const common::Response& response) {
  if (!used_) {
    return;
  }
  auto& outstanding = outstanding_[current_];
  if (response.response_type() == common::Response::BARRIER) {
    outstanding.erase(kBarrier);
  }
  for (const auto& name : response.tensor_names()) {
    outstanding.erase(name);
  }
}

}  // namespace paceline
}  // namespace horovod
