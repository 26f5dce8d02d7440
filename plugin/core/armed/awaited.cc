#include "core/armed/awaited.h"

#include <utility>

namespace paceline::core {

void Awaited::Expect(std::vector<std::string> first, const std::vector<std::string>& others) {
  const std::lock_guard<std::mutex> lock(mutex_);
  step_of_.clear();
  for (auto& name : first) {
    step_of_[std::move(name)] = 0;
  }
  first_ = static_cast<int64_t>(step_of_.size());
  for (const auto& name : others) {
    step_of_[name] = kOther;
  }
  step_ = 0;
  counting_ = false;
}

void Awaited::Begin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++step_;
  lacking_ = first_;
  counting_ = true;
}

void Awaited::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  counting_ = false;
}

Need Awaited::Of(const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = step_of_.find(name);
  if (!counting_ || found == step_of_.end()) {
    return Need::kRound;
  }
  if (found->second == kOther) {
    return lacking_ > 0 ? Need::kOthers : Need::kNone;
  }
  if (found->second == step_) {
    counting_ = false;
    return Need::kRound;
  }
  found->second = step_;
  return --lacking_ > 0 ? Need::kOthers : Need::kRound;
}

}  // namespace paceline::core
