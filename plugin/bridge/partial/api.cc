// The C entry points of partial collectives, which plugin/partial/stats.py and plugin/partial/state.py call through
// ctypes.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "bridge/runtime.h"

using horovod::paceline::GetRuntime;
using horovod::paceline::PartialState;
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

// The dimensions of the tensors of this name (without its mark) and Horovod's number of their type; returns how many
// dimensions, -1 if there were no calls or there are more than `most`.
int32_t horovod_paceline_partial_describe(const char* name, int32_t process_set, int64_t* dims, int32_t most,
                                          int32_t* dtype) {
  const auto channel = GetRuntime().partials.Find(name, process_set);
  if (channel == nullptr || channel->shape().dims() > most) {
    return -1;
  }
  const auto shape = channel->shape();
  for (int n = 0; n < shape.dims(); ++n) {
    dims[n] = shape.dim_size(n);
  }
  *dtype = static_cast<int32_t>(channel->dtype());
  return shape.dims();
}

// What a run that goes on needs of this name (without its mark): rounds performed, contributions in the send buffer,
// rounds missed, and contributions in their results, to `numbers`; the send buffer and those results, of `bytes` each.
// Returns 0; 1 while a call waits or a round is under way; -1 if there were no calls, -2 if the size is another.
int32_t horovod_paceline_partial_save(const char* name, int32_t process_set, int64_t* numbers, void* send,
                                      void* results, int64_t bytes) {
  const auto channel = GetRuntime().partials.Find(name, process_set);
  PartialState state;
  if (channel == nullptr) {
    return -1;
  }
  if (!channel->Save(state)) {
    return 1;
  }
  if (static_cast<int64_t>(state.send.size()) != bytes) {
    return -2;
  }
  const int64_t values[] = {state.rounds, state.pending, state.missed, state.fresh};
  std::copy(std::begin(values), std::end(values), numbers);
  std::memcpy(send, state.send.data(), state.send.size());
  std::memcpy(results, state.results.data(), state.results.size());
  return 0;
}

// Makes the next call under this name (without its mark) go on from such a state. Returns 0, or -1 while a call waits
// or a round is under way, or if calls of another shape or type were made.
int32_t horovod_paceline_partial_restore(const char* name, int32_t process_set, int32_t dtype, const int64_t* dims,
                                         int32_t count, const int64_t* numbers, const void* send, const void* results,
                                         int64_t bytes) {
  PartialState state{
      static_cast<horovod::common::DataType>(dtype), {}, numbers[0], numbers[1], numbers[2], numbers[3], {}, {}};
  for (int32_t n = 0; n < count; ++n) {
    state.shape.AddDim(dims[n]);
  }
  const auto* from = static_cast<const uint8_t*>(send);
  state.send.assign(from, from + bytes);
  from = static_cast<const uint8_t*>(results);
  state.results.assign(from, from + bytes);
  return GetRuntime().partials.Restore(name, process_set, std::move(state)) ? 0 : -1;
}
}
