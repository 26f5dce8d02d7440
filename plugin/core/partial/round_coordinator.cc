#include "core/partial/round_coordinator.h"

#include <algorithm>

namespace paceline::core {

void RoundCoordinator::Begin(const std::string& name, QuorumRule rule) {
  counts_.try_emplace(name, name, static_cast<int32_t>(unanswered_.size()), rule);
}

RoundCoordinator::Count& RoundCoordinator::Open(const std::string& name) {
  auto& count = counts_.at(name);
  standstill_.Changed();
  count.silent = false;
  if (!count.open) {
    count.open = true;
    open_.push_back(&count);
  }
  return count;
}

void RoundCoordinator::Came(Count& count, int32_t rank) {
  const auto number = static_cast<size_t>(rank);
  lateness_->Called(rank);
  if (count.owes[number]) {
    count.owes[number] = false;
    late_.emplace_back(rank, count.last_ns);
  }
}

void RoundCoordinator::Vote(const std::string& name, int32_t rank) {
  auto& count = Open(name);
  Came(count, rank);
  ++count.requests;
  unanswered_[static_cast<size_t>(rank)] += count.votes.Vote(rank) ? 1 : 0;
}

void RoundCoordinator::Flush(const std::string& name, int32_t rank) {
  auto& count = Open(name);
  ++count.requests;
  flushing_[static_cast<size_t>(rank)] += count.votes.Flush(rank) ? 1 : 0;
}

void RoundCoordinator::Arrived(const std::string& name, int32_t rank, int64_t round) {
  auto& count = Open(name);
  Came(count, rank);
  count.votes.Arrived(rank, round);
}

void RoundCoordinator::Misfit(const std::string& name) { ++Open(name).misfits; }

bool RoundCoordinator::Complete(const Count& count) {
  return count.votes.ready() || (count.misfits > 0 && count.requests > 0);
}

bool RoundCoordinator::Holds(const MergeGroup& group) const {
  return std::any_of(group.names.begin(), group.names.end(), [&](const auto& other) {
    const auto found = counts_.find(other);
    return found != counts_.end() && found->second.ready_ns == 0 && !found->second.silent;
  });
}

void RoundCoordinator::Release(const MergeGroup& group) {
  for (const auto& other : group.names) {
    const auto found = counts_.find(other);
    if (found != counts_.end()) {
      found->second.silent = !found->second.open;
    }
  }
}

// There is a round to begin, and no rank is known to go on by itself.
bool RoundCoordinator::AllWait() const {
  for (size_t rank = 0; rank < unanswered_.size(); ++rank) {
    if (unanswered_[rank] == 0 && flushing_[rank] == 0 && !attendance_.absent[rank]) {
      return false;
    }
  }
  return std::any_of(open_.begin(), open_.end(), [](const Count* count) {
    return count->ready_ns == 0 && !count->votes.idle() && count->votes.round() > 0;
  });
}

void RoundCoordinator::NoteBegun(const Count& count) {
  Standstill::Name name{count.name, {}, {}};
  for (int32_t rank = 0; rank < static_cast<int32_t>(unanswered_.size()); ++rank) {
    (count.votes.rank(rank).voted ? name.called : name.missing).push_back(rank);
  }
  begun_by_standstill_.push_back(std::move(name));
}

void RoundCoordinator::Settle(int64_t now_ns) {
  for (const auto& [rank, round_ns] : late_) {
    lateness_->CameLate(rank, now_ns - round_ns);
  }
  late_.clear();
  for (size_t rank = 0; rank < unanswered_.size(); ++rank) {
    attendance_.blocked[rank] = unanswered_[rank] > 0;
  }
  open_.erase(std::remove_if(open_.begin(), open_.end(),
                             [](Count* count) {
                               count->open = !count->votes.idle() || count->misfits > 0;
                               return !count->open;
                             }),
              open_.end());
  begun_by_standstill_.clear();
  attendance_.standstill = StandsStill(now_ns);
  for (auto* count : open_) {
    count->votes.Settle(attendance_);
    if (count->ready_ns == 0 && Complete(*count)) {
      count->ready_ns = now_ns;
      if (attendance_.standstill) {
        NoteBegun(*count);
      }
    }
  }
}

std::vector<std::string> RoundCoordinator::Ready(const GroupOf& group_of, int64_t now_ns) {
  Settle(now_ns);
  std::vector<std::string> ready;
  std::unordered_map<const MergeGroup*, bool> held;
  waiting_ = false;
  for (auto* count : open_) {
    if (count->announced || count->ready_ns == 0) {
      continue;
    }
    const auto* together = group_of(count->name);
    if (together != nullptr && now_ns - count->ready_ns >= together->timeout_ns) {
      Release(*together);
    } else if (together != nullptr) {
      const auto [known, is_new] = held.try_emplace(together, false);
      if (is_new) {
        known->second = Holds(*together);
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

// `closing`: flushes are answered, too.
void RoundCoordinator::Answered(const Count& count, bool closing) {
  standstill_.Changed();
  for (size_t number = 0; number < unanswered_.size(); ++number) {
    const auto& rank = count.votes.rank(static_cast<int32_t>(number));
    unanswered_[number] -= rank.voted ? 1 : 0;
    flushing_[number] -= closing && rank.flushing ? 1 : 0;
  }
}

void RoundCoordinator::Sent(const std::string& name) {
  const auto found = counts_.find(name);
  if (found == counts_.end()) {
    return;
  }
  auto& count = found->second;
  Answered(count, count.votes.closing());
  for (size_t rank = 0; rank < count.owes.size(); ++rank) {
    const auto& one = count.votes.rank(static_cast<int32_t>(rank));
    count.owes[rank] = !(one.voted || one.flushing || attendance_.absent[rank]);
  }
  lateness_->Sent(count.owes);
  count.last_ns = count.ready_ns;
  count.votes.Executed();
  count.announced = false;
  count.ready_ns = 0;
  count.requests = 0;
}

void RoundCoordinator::Failed(const std::string& name) {
  const auto found = counts_.find(name);
  if (found == counts_.end()) {
    return;
  }
  Answered(found->second, true);
  open_.erase(std::remove(open_.begin(), open_.end(), &found->second), open_.end());
  counts_.erase(found);
}

}  // namespace paceline::core
