#include "bridge/partial_coordinator.h"

#include <algorithm>

namespace horovod {
namespace paceline {

void PartialCoordinator::Take(Count& count, const common::Request& request, int64_t round) {
  const int32_t rank = request.request_rank();
  switch (NewsOf(request)) {
    case PartialNews::kVote:
      ++count.requests;
      Voted(rank, count.votes.Vote(rank));
      break;
    case PartialNews::kFlush:
      ++count.requests;
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
    case PartialNews::kLook:
      break;
    case PartialNews::kMisfit:
      count.misfits.push_back(request);
      break;
  }
}

void PartialCoordinator::Voted(int32_t rank, ::paceline::core::Votes::Tally tally) {
  if (tally != ::paceline::core::Votes::Tally::kDefect) {
    ++unanswered_[static_cast<size_t>(rank)];
  }
}

bool PartialCoordinator::Counts(const common::Request& request, int32_t size) {
  if (request.request_type() != common::Request::ALLREDUCE || request.root_rank() == 0) {
    return false;
  }
  const auto& name = request.tensor_name();
  unanswered_.resize(static_cast<size_t>(size), 0);
  auto found = counts_.find(name);
  if (found == counts_.end()) {
    const auto channel = find_(name);
    if (channel == nullptr) {
      // Other ranks may come before this one, whose first call says by which rule. Round 0 waits for it anyway.
      early_[name].push_back(request);
      return true;
    }
    found = counts_.try_emplace(name, size, channel->mark().rule).first;
    for (const auto& before : early_[name]) {
      Take(found->second, before, 0);
    }
    early_.erase(name);
  }
  Take(found->second, request, 0);
  return true;
}

void PartialCoordinator::Noted(const common::Request& note) {
  // Without a vote so far there is nobody to wait for this rank.
  const auto found = counts_.find(NotedName(note.tensor_name()));
  if (found != counts_.end()) {
    Take(found->second, note, note.tensor_shape()[0]);
  }
}

// Horovod finds out that shapes differ when it compares a misfit with another request.
bool PartialCoordinator::Complete(const Count& count) {
  return count.votes.ready() || (!count.misfits.empty() && count.requests > 0);
}

bool PartialCoordinator::Held(const MergeGroup& group) const {
  return std::any_of(group.names.begin(), group.names.end(), [&](const auto& other) {
    const auto found = counts_.find(other);
    return found != counts_.end() && found->second.ready_ns == 0;
  });
}

std::vector<std::string> PartialCoordinator::Ready(const Group& group, int64_t now_ns) {
  std::vector<bool> blocked;
  for (const int32_t votes : unanswered_) {
    blocked.push_back(votes > 0);
  }
  for (auto& [name, count] : counts_) {
    count.votes.Settle(blocked);
    if (count.ready_ns == 0 && Complete(count)) {
      count.ready_ns = now_ns;
    }
  }
  std::vector<std::string> ready;
  waiting_ = false;
  for (auto& [name, count] : counts_) {
    if (count.announced || count.ready_ns == 0) {
      continue;
    }
    const auto* together = group(name);
    if (together != nullptr && Held(*together) && now_ns - count.ready_ns < together->patience_ns) {
      waiting_ = true;
      continue;
    }
    ready.push_back(name);
    count.announced = true;
  }
  return ready;
}

void PartialCoordinator::Sent(const common::Response& response, const std::string& name) {
  const auto found = counts_.find(name);
  if (found == counts_.end()) {
    return;
  }
  for (size_t rank = 0; rank < unanswered_.size(); ++rank) {
    unanswered_[rank] -= found->second.votes.rank(static_cast<int32_t>(rank)).voted ? 1 : 0;
  }
  if (response.response_type() == common::Response::ERROR) {
    counts_.erase(found);
    return;
  }
  found->second.votes.Executed();
  found->second.announced = false;
  found->second.ready_ns = 0;
  found->second.requests = 0;
}

std::string PartialCoordinator::Error(const std::string& name) const {
  const auto found = counts_.find(name);
  const auto channel = find_(name);
  if (found == counts_.end() || found->second.misfits.empty() || channel == nullptr) {
    return {};
  }
  const auto& misfit = found->second.misfits.front();
  return channel->Misfit(misfit.tensor_type(), FoundShape(misfit), " on rank " + std::to_string(misfit.request_rank()));
}

}  // namespace paceline
}  // namespace horovod
