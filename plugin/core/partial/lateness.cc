#include "core/partial/lateness.h"

namespace paceline::core {

void Lateness::Sent(const std::vector<bool>& missed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++totals_.rounds;
  for (size_t rank = 0; rank < missed.size(); ++rank) {
    totals_.ranks[rank].missed += missed[rank] ? 1 : 0;
  }
}

void Lateness::Called(int32_t rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++totals_.ranks[static_cast<size_t>(rank)].calls;
}

void Lateness::CameLate(int32_t rank, int64_t late_ns) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& one = totals_.ranks[static_cast<size_t>(rank)];
  ++one.late;
  one.late_ns += late_ns;
}

std::optional<Lateness::Straggler> Lateness::Look(int64_t names, int64_t now_ns) {
  constexpr int64_t kLeastPart = 10;  // of a step
  const std::lock_guard<std::mutex> lock(mutex_);
  if (looked_ns_ == 0) {
    looked_ns_ = now_ns;
  }
  const auto rounds = totals_.rounds - before_.rounds;
  if (names == 0 || rounds < kSteps * names) {
    return std::nullopt;
  }
  const auto step_ns = (now_ns - looked_ns_) * names / rounds;
  std::optional<Straggler> found;
  for (size_t rank = 0; rank < reported_.size(); ++rank) {
    const auto& now = totals_.ranks[rank];
    const auto& then = before_.ranks[rank];
    const auto late = now.late - then.late, calls = now.calls - then.calls;
    const auto mean_ns = late == 0 ? 0 : (now.late_ns - then.late_ns) / late;
    if (!reported_[rank] && 2 * late > calls && kLeastPart * mean_ns >= step_ns &&
        (!found || mean_ns > found->mean_late_ns)) {
      found = {static_cast<int32_t>(rank), calls / names, late / names, mean_ns, step_ns};
    }
  }
  if (found) {
    reported_[static_cast<size_t>(found->rank)] = true;
  }
  before_ = totals_;
  looked_ns_ = now_ns;
  return found;
}

Lateness::Totals Lateness::totals() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return totals_;
}

}  // namespace paceline::core
