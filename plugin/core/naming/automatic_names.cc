#include "core/naming/automatic_names.h"

#include <string_view>

namespace paceline::core {

namespace {

constexpr std::string_view kMark = ".noname.";

}  // namespace

std::string AutomaticNames::Next(const std::string& kind, int32_t process_set_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& counts = of_set_[process_set_id];
  return kind + std::string(kMark) + std::to_string(counts.epoch) + "." + std::to_string(counts.of_kind[kind]++);
}

bool AutomaticNames::Made(const std::string& name) {
  // Kinds have no dots. A name that was given comes behind the kind, and may have the mark further behind.
  const auto end = name.find('.');
  return end != std::string::npos && name.compare(end, kMark.size(), kMark) == 0;
}

void AutomaticNames::AdvanceEpoch(int32_t process_set_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& counts = of_set_[process_set_id];
  ++counts.epoch;
  counts.of_kind.clear();
}

void AutomaticNames::Forget(int32_t process_set_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  of_set_.erase(process_set_id);
}

void AutomaticNames::Reset() {
  std::lock_guard<std::mutex> lock(mutex_);
  of_set_.clear();
}

}  // namespace paceline::core
