#include "core/automatic_names.h"

namespace paceline::core {

std::string AutomaticNames::Next(const std::string& kind) {
  std::lock_guard<std::mutex> lock(mutex_);
  return kind + ".noname." + std::to_string(epoch_) + "." + std::to_string(counts_[kind]++);
}

void AutomaticNames::Meet() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++epoch_;
  counts_.clear();
}

void AutomaticNames::Reset() {
  std::lock_guard<std::mutex> lock(mutex_);
  epoch_ = 0;
  counts_.clear();
}

}  // namespace paceline::core
