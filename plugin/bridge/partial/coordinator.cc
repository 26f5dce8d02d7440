#include "bridge/partial/coordinator.h"

#include <algorithm>

namespace horovod {
namespace paceline {

void PartialCoordinator::Take(Count& count, const common::Request& request, int64_t round) {
  const int32_t rank = request.request_rank();
  switch (NewsOf(request)) {
    case PartialNews::kVote:
      ++count.requests;
      unanswered_[static_cast<size_t>(rank)] += count.votes.Vote(rank) ? 1 : 0;
      break;
    case PartialNews::kFlush:
      ++count.requests;
      count.votes.Flush(rank);
      break;
    case PartialNews::kArrived:
      count.votes.Arrived(rank, round);
      break;
    case PartialNews::kMisfit:
      count.misfits.push_back(request);
      break;
    default:  // about no name
      return;
  }
  if (!count.open) {
    count.open = true;
    open_.push_back(&count);
  }
}

bool PartialCoordinator::Counts(const common::Request& request) {
  if (request.request_type() != common::Request::ALLREDUCE || request.root_rank() == 0) {
    return false;
  }
  const auto& name = request.tensor_name();
  auto found = counts_.find(name);
  if (found == counts_.end()) {
    const auto channel = find_(name);
    if (channel == nullptr) {
      // Other ranks may come before this one, whose first call says by which rule. Round 0 waits for it anyway.
      early_[name].push_back(request);
      return true;
    }
    found = counts_.try_emplace(name, name, size(), channel->mark().rule).first;
    for (const auto& before : early_[name]) {
      Take(found->second, before, 0);
    }
    early_.erase(name);
  }
  Take(found->second, request, 0);
  return true;
}

void PartialCoordinator::Noted(const common::Request& note) {
  const auto news = NewsOf(note);
  if (news == PartialNews::kAbsent || news == PartialNews::kPresent) {
    attendance_.absent[static_cast<size_t>(note.request_rank())] = news == PartialNews::kAbsent;
    return;
  }
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
  for (size_t rank = 0; rank < unanswered_.size(); ++rank) {
    attendance_.blocked[rank] = unanswered_[rank] > 0;
  }
  open_.erase(std::remove_if(open_.begin(), open_.end(),
                             [](Count* count) {
                               count->open = !count->votes.idle() || !count->misfits.empty();
                               return !count->open;
                             }),
              open_.end());
  for (auto* count : open_) {
    count->votes.Settle(attendance_);
    if (count->ready_ns == 0 && Complete(*count)) {
      count->ready_ns = now_ns;
    }
  }
  std::vector<std::string> ready;
  std::unordered_map<const MergeGroup*, bool> held;
  waiting_ = false;
  for (auto* count : open_) {
    if (count->announced || count->ready_ns == 0) {
      continue;
    }
    const auto* together = group(count->name);
    if (together != nullptr && now_ns - count->ready_ns < together->patience_ns) {
      const auto [known, is_new] = held.try_emplace(together, false);
      if (is_new) {
        known->second = Held(*together);
      }
      if (known->second) {
        waiting_ = true;
        continue;
      }
    }
    ready.push_back(count->name);
    count->announced = true;
  }
  return ready;
}

void PartialCoordinator::Sent(const common::Response& response, const std::string& name) {
  const auto found = counts_.find(name);
  if (found == counts_.end()) {
    return;
  }
  auto& count = found->second;
  for (size_t rank = 0; rank < unanswered_.size(); ++rank) {
    unanswered_[rank] -= count.votes.rank(static_cast<int32_t>(rank)).voted ? 1 : 0;
  }
  if (response.response_type() == common::Response::ERROR) {
    open_.erase(std::remove(open_.begin(), open_.end(), &count), open_.end());
    counts_.erase(found);
    return;
  }
  count.votes.Executed();
  count.announced = false;
  count.ready_ns = 0;
  count.requests = 0;
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
