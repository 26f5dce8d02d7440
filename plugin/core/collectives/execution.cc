#include "core/collectives/execution.h"

#include <cassert>
#include <utility>

namespace paceline::core {

CollectiveExecution::CollectiveExecution(std::shared_ptr<const CollectiveSchedule> schedule)
    : schedule_(std::move(schedule)) {
  const auto& operations = schedule_->operations;
  const std::size_t count = operations.size();
  states_.assign(count, State::kWaiting);
  missing_.assign(count, 0);
  first_.assign(count + 1, 0);
  for (std::size_t number = 0; number < count; ++number) {
    for (const int32_t earlier : operations[number].after) {
      if (earlier >= 0) {
        ++missing_[number];
        ++first_[static_cast<std::size_t>(earlier) + 1];
      }
    }
    if (missing_[number] == 0) {
      states_[number] = State::kReady;
      AddReady(static_cast<int32_t>(number));
    }
  }
  for (std::size_t number = 0; number < count; ++number) {
    first_[number + 1] += first_[number];
  }
  followers_.resize(first_[count]);
  std::vector<std::size_t> next(first_.begin(), first_.end() - 1);
  for (std::size_t number = 0; number < count; ++number) {
    for (const int32_t earlier : operations[number].after) {
      if (earlier >= 0) {
        followers_[next[static_cast<std::size_t>(earlier)]++] = static_cast<int32_t>(number);
      }
    }
  }
}

void CollectiveExecution::AddReady(int32_t number) {
  const auto kind = schedule_->operations[static_cast<std::size_t>(number)].kind;
  ready_.emplace(kind != CollectiveSchedule::Operation::Kind::kReceive, number);
}

int32_t CollectiveExecution::Next() {
  if (ready_.empty()) {
    return -1;
  }
  const int32_t number = ready_.top().second;
  ready_.pop();
  states_[static_cast<std::size_t>(number)] = State::kStarted;
  return number;
}

void CollectiveExecution::Done(int32_t number) {
  const auto index = static_cast<std::size_t>(number);
  assert(index < states_.size() && states_[index] == State::kStarted);
  states_[index] = State::kDone;
  ++done_;
  for (std::size_t n = first_[index]; n < first_[index + 1]; ++n) {
    const auto follower = static_cast<std::size_t>(followers_[n]);
    if (--missing_[follower] == 0) {
      states_[follower] = State::kReady;
      AddReady(followers_[n]);
    }
  }
}

std::vector<int32_t> CollectiveExecution::Started() const {
  std::vector<int32_t> started;
  for (std::size_t number = 0; number < states_.size(); ++number) {
    if (states_[number] == State::kStarted) {
      started.push_back(static_cast<int32_t>(number));
    }
  }
  return started;
}

}  // namespace paceline::core
