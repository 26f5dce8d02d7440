// The C entry point of partial collectives, which plugin/exchange_stats.py calls through ctypes.

#include <algorithm>
#include <cstdint>

#include "bridge/runtime.h"

using horovod::paceline::GetRuntime;
using paceline::core::RoundState;

extern "C" {

// Totals over all names of a process set, on this rank: the number of names; rounds performed; calls that came in time
// and late; rounds without a fresh contribution of this rank; contributions that left with a later round; then, for
// each lag from 0, the calls that were so many rounds late, the last element: or more. Returns how many numbers there
// are, of which at most `capacity` are written.
int32_t horovod_paceline_partial_counters(int32_t process_set, int64_t* out, int32_t capacity) {
  constexpr int32_t kBefore = 6;
  int64_t totals[kBefore + RoundState::Counters::kLags] = {};
  for (const auto& one : GetRuntime().partials.Counters(process_set)) {
    const int64_t values[kBefore] = {1, one.rounds, one.on_time, one.late, one.missed, one.carried};
    for (int32_t n = 0; n < kBefore; ++n) {
      totals[n] += values[n];
    }
    for (size_t lag = 0; lag < RoundState::Counters::kLags; ++lag) {
      totals[kBefore + lag] += one.lags[lag];
    }
  }
  constexpr auto kCount = static_cast<int32_t>(kBefore + RoundState::Counters::kLags);
  std::copy_n(totals, std::min(kCount, capacity), out);
  return kCount;
}
}
