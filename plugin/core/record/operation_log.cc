#include "core/record/operation_log.h"

namespace paceline::core {

namespace {

constexpr size_t kMostSteps = 10;
constexpr size_t kMostOperations = 4096;
// Operations without names of the user's have a new name each: their steps would never end.
constexpr size_t kMostInStep = 65536;

}  // namespace

void OperationLog::Start() {
  Clear();
  keeping_.store(true, std::memory_order_relaxed);
}

void OperationLog::Stop() { keeping_.store(false, std::memory_order_relaxed); }

void OperationLog::Clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  first_step_ = 0;
  kept_ = 0;
  steps_.clear();
  latest_.clear();
}

void OperationLog::Submitted(Submission submission, int64_t now_ns) {
  if (!keeping()) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& latest = latest_[{submission.process_set, submission.name}];
  const auto running = first_step_ + static_cast<int64_t>(steps_.size()) - 1;
  const bool repeats = latest.number > 0 && latest.step == running;
  if (steps_.empty() || repeats || steps_.back().size() == kMostInStep) {
    steps_.emplace_back();
  }
  auto& step = steps_.back();
  latest = {first_step_ + static_cast<int64_t>(steps_.size()) - 1, step.size(), latest.number + 1};
  step.push_back({std::move(submission), latest.step, latest.number, now_ns});
  ++kept_;
  DropOldSteps();
}

void OperationLog::DropOldSteps() {
  while (steps_.size() > 2 && (steps_.size() > kMostSteps || kept_ > kMostOperations)) {
    for (const auto& operation : steps_.front()) {
      const auto found = latest_.find({operation.submission.process_set, operation.submission.name});
      if (found != latest_.end() && found->second.step == first_step_) {
        latest_.erase(found);
      }
    }
    kept_ -= steps_.front().size();
    steps_.pop_front();
    ++first_step_;
  }
}

LoggedOperation* OperationLog::Latest(int32_t process_set, const std::string& name) {
  const auto found = latest_.find({process_set, name});
  if (found == latest_.end()) {
    return nullptr;
  }
  return &steps_[static_cast<size_t>(found->second.step - first_step_)][found->second.position];
}

void OperationLog::Started(int32_t process_set, const std::string& name, int64_t now_ns) {
  if (!keeping()) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (auto* operation = Latest(process_set, name); operation != nullptr && operation->started_ns == 0) {
    operation->started_ns = now_ns;
  }
}

void OperationLog::Completed(int32_t process_set, const std::string& name, int64_t now_ns) {
  if (!keeping()) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (auto* operation = Latest(process_set, name); operation != nullptr) {
    operation->completed_ns = now_ns;
  }
}

std::vector<LoggedOperation> OperationLog::Recent() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<LoggedOperation> all;
  all.reserve(kept_);
  for (const auto& step : steps_) {
    all.insert(all.end(), step.begin(), step.end());
  }
  return all;
}

}  // namespace paceline::core
