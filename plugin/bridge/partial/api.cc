// The C entry points of partial collectives, which plugin/partial/stats.py and plugin/partial/state.py call through
// ctypes.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "bridge/c_boundary.h"
#include "bridge/copy_text.h"
#include "bridge/description.h"
#include "bridge/json_text.h"
#include "bridge/partial/partial.h"
#include "bridge/participants.h"

using horovod::paceline::Get;
using horovod::paceline::Partial;
using horovod::paceline::PartialState;
using horovod::paceline::TensorDescription;
using paceline::core::RoundState;

extern "C" {

// Totals over all names of a process set, on this rank: as ExchangeStats of plugin/partial/stats.py.
const char* horovod_paceline_partial_counters(int32_t process_set) try {
  RoundState::Counters all;
  int64_t names = 0;
  std::vector<int64_t> lags(RoundState::Counters::kLags);
  for (const auto& one : Get<Partial>().Counters(process_set)) {
    ++names;
    all.rounds += one.rounds;
    all.on_time += one.on_time;
    all.late += one.late;
    all.missed += one.missed;
    all.carried += one.carried;
    for (size_t lag = 0; lag < lags.size(); ++lag) {
      lags[lag] += one.lags[lag];
    }
  }
  return horovod::paceline::JsonText(paceline::core::Json()
                                         .Put("names", names)
                                         .Put("rounds", all.rounds)
                                         .Put("on_time", all.on_time)
                                         .Put("late", all.late)
                                         .Put("missed", all.missed)
                                         .Put("carried", all.carried)
                                         .Put("lags", lags));
}
PACELINE_CATCH(nullptr)

// How late the ranks of a process set were, by rank, as RankLateness of plugin/partial/stats.py; on the rank that
// coordinates the set, on others without ranks.
const char* horovod_paceline_partial_lateness(int32_t process_set) try {
  const auto totals = Get<Partial>().Lateness(process_set);
  std::vector<int64_t> calls, missed, late, late_ns;
  for (const auto& rank : totals.ranks) {
    calls.push_back(rank.calls);
    missed.push_back(rank.missed);
    late.push_back(rank.late);
    late_ns.push_back(rank.late_ns);
  }
  return horovod::paceline::JsonText(paceline::core::Json()
                                         .Put("rounds", totals.rounds)
                                         .Put("calls", calls)
                                         .Put("missed", missed)
                                         .Put("late", late)
                                         .Put("late_ns", late_ns));
}
PACELINE_CATCH(nullptr)

// Describes the tensors of this name; returns 0, or -1 if there were no calls or there are too many dimensions.
int32_t horovod_paceline_partial_describe(int32_t process_set, const char* name, TensorDescription* out) try {
  const auto channel = Get<Partial>().Find(process_set, name);
  return channel != nullptr && horovod::paceline::Describe(channel->dtype(), channel->shape(), *out) ? 0 : -1;
}
PACELINE_CATCH(-1)

// What a run that goes on needs of this name: rounds performed, contributions in the send buffer,
// rounds missed, and contributions in their results, to `numbers`; the send buffer and those results, of `bytes` each.
// Returns 0; 1 while a call waits or a round is under way; -1 if there were no calls, -2 if the size is another.
int32_t horovod_paceline_partial_save(int32_t process_set, const char* name, int64_t* numbers, void* send,
                                      void* results, int64_t bytes) try {
  const auto channel = Get<Partial>().Find(process_set, name);
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
PACELINE_CATCH(-1)

// Makes the next call under this name go on from such a state. Returns 0, or -1 while a call waits
// or a round is under way, or if calls of another shape or type were made.
int32_t horovod_paceline_partial_restore(int32_t process_set, const char* name, const TensorDescription* description,
                                         const int64_t* numbers, const void* send, const void* results,
                                         int64_t bytes) try {
  PartialState state{static_cast<horovod::common::DataType>(description->dtype),
                     horovod::paceline::ShapeOf(*description),
                     numbers[0],
                     numbers[1],
                     numbers[2],
                     numbers[3],
                     {},
                     {}};
  const auto* from = static_cast<const uint8_t*>(send);
  state.send.assign(from, from + bytes);
  from = static_cast<const uint8_t*>(results);
  state.results.assign(from, from + bytes);
  return Get<Partial>().Restore(process_set, name, std::move(state)) ? 0 : -1;
}
PACELINE_CATCH(-1)

// Begins to flush this name: no call is made of it until `flushed` has taken the answer. Returns 0, or -1 and in
// `error` why not.
int32_t horovod_paceline_partial_flush(int32_t process_set, const char* name, char* error, int64_t capacity) try {
  const auto channel = Get<Partial>().Find(process_set, name);
  const auto status = channel == nullptr ? horovod::common::Status::OK() : channel->Flush();
  horovod::paceline::CopyText(status.reason(), error, capacity);
  return status.ok() ? 0 : -1;
}
PACELINE_CATCH(-1, error, capacity)

// Takes the answer, everything that this rank had not been answered with, to `out`; without `out` it stays. Returns 0,
// or 1 while it is waited for, 2 if none was asked for, and -1 and in `error` why there will be none.
int32_t horovod_paceline_partial_flushed(int32_t process_set, const char* name, void* out, int64_t bytes, char* error,
                                         int64_t capacity) try {
  using State = horovod::paceline::PartialChannel::FlushState;
  const auto channel = Get<Partial>().Find(process_set, name);
  auto status = horovod::common::Status::OK();
  const auto state = channel == nullptr ? State::kNone : channel->Flushed(out, bytes, status);
  horovod::paceline::CopyText(status.reason(), error, capacity);
  if (!status.ok()) {
    return -1;
  }
  return state == State::kDone ? 0 : (state == State::kWaits ? 1 : 2);
}
PACELINE_CATCH(-1, error, capacity)

// Begins to flush all names of all process sets: this rank makes no more calls.
void horovod_paceline_partial_flush_all() try { Get<Partial>().FlushAll(); }
PACELINE_CATCH()

// The next call of this name flushes: it contributes nothing, and is answered with everything that this rank has not
// been answered with yet.
void horovod_paceline_partial_flush_next(int32_t process_set, const char* name) try {
  Get<Partial>().FlushNext(process_set, name);
}
PACELINE_CATCH()
}
