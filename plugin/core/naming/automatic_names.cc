#include "core/naming/automatic_names.h"

namespace paceline::core {

std::string AutomaticNames::Next(const std::string& kind, int32_t process_set_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& counts = of_set_[process_set_id];
  return kind + ".noname." + std::to_string(counts.epoch) + "." + std::to_string(counts.of_kind[kind]++);
}

void AutomaticNames::AdvanceEpoch(int32_t process_set_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& counts = of_set_[process_set_id];
  ++counts.epoch;
  counts.of_kind.clear();
}

void AutomaticNames::Begin(int32_t process_set_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  of_set_.erase(process_set_id);
}

void AutomaticNames::Reset() {
  std::lock_guard<std::mutex> lock(mutex_);
  of_set_.clear();
}

}  // namespace paceline::core
