// The C entry points of the pipelined exchange, which plugin/native/in_flight.py calls through ctypes.

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "bridge/c_boundary.h"
#include "bridge/copy_text.h"
#include "bridge/description.h"
#include "bridge/participants.h"
#include "bridge/pipelined/pipelined.h"

using horovod::paceline::CopyText;
using horovod::paceline::CpuTensor;
using horovod::paceline::Get;
using horovod::paceline::Pipelined;
using horovod::paceline::TensorDescription;

extern "C" {

// Waits, at most `limit_s`, until nothing of this name is being reduced; returns the number of results in flight, or -1
// and in `error` what went wrong. A name without calls has none.
int32_t horovod_paceline_pipelined_settle(int32_t process_set, const char* name, double limit_s, char* error,
                                          int64_t capacity) try {
  const auto channel = Get<Pipelined>().Find(process_set, name);
  if (channel == nullptr) {
    return 0;
  }
  const auto status = channel->Settle(limit_s);
  if (!status.ok()) {
    CopyText(status.reason(), error, capacity);
    return -1;
  }
  return static_cast<int32_t>(channel->Results().size());
}
PACELINE_CATCH(-1, error, capacity)

// Waits, at most `limit_s`, until nothing is in flight under any name; 1 if that is so.
int32_t horovod_paceline_pipelined_settle_all(double limit_s) try { return Get<Pipelined>().Settle(limit_s) ? 1 : 0; }
PACELINE_CATCH(-1)

// Copies result `index`, counted from the oldest, and returns its size in bytes; -1 if there is none, or not so large.
int64_t horovod_paceline_pipelined_result(int32_t process_set, const char* name, int32_t index, void* out,
                                          int64_t capacity) try {
  const auto channel = Get<Pipelined>().Find(process_set, name);
  if (channel == nullptr) {
    return -1;
  }
  const auto results = channel->Results();
  if (index < 0 || index >= static_cast<int32_t>(results.size()) ||
      results[static_cast<size_t>(index)]->size() > capacity) {
    return -1;
  }
  const auto& result = *results[static_cast<size_t>(index)];
  std::memcpy(out, result.data(), static_cast<size_t>(result.size()));
  return result.size();
}
PACELINE_CATCH(-1)

// Describes result `index`; returns 0, or -1 if there is none or it has too many dimensions.
int32_t horovod_paceline_pipelined_describe(int32_t process_set, const char* name, int32_t index,
                                            TensorDescription* out) try {
  const auto channel = Get<Pipelined>().Find(process_set, name);
  if (channel == nullptr) {
    return -1;
  }
  const auto results = channel->Results();
  if (index < 0 || index >= static_cast<int32_t>(results.size())) {
    return -1;
  }
  const auto& result = *results[static_cast<size_t>(index)];
  return horovod::paceline::Describe(result.dtype(), result.shape(), *out) ? 0 : -1;
}
PACELINE_CATCH(-1)

// As if no call of this name had been made; it stays registered.
void horovod_paceline_pipelined_drop(int32_t process_set, const char* name) try {
  Get<Pipelined>().Drop(process_set, name);
}
PACELINE_CATCH()

// Nothing of this name is in flight any more. Only after settling.
void horovod_paceline_pipelined_clear(int32_t process_set, const char* name) try {
  const auto channel = Get<Pipelined>().Find(process_set, name);
  if (channel != nullptr) {
    channel->Clear();
  }
}
PACELINE_CATCH()

// Adds a result as if it had just been reduced. Returns 0, or -1 if K - 1 are in flight already or the name is not
// registered as pipelined.
int32_t horovod_paceline_pipelined_put(int32_t process_set, const char* name, const TensorDescription* description,
                                       const void* data) try {
  const auto channel = Get<Pipelined>().Registered(process_set, name);
  if (channel == nullptr) {
    return -1;
  }
  auto result = std::make_shared<CpuTensor>(static_cast<horovod::common::DataType>(description->dtype),
                                            horovod::paceline::ShapeOf(*description));
  std::memcpy(result->bytes(), data, static_cast<size_t>(result->size()));
  return channel->Put(std::move(result)) ? 0 : -1;
}
PACELINE_CATCH(-1)

// The next `calls` calls of this name, and no others, are plain allreduces. Returns 0, or -1 if the name is not
// registered as pipelined.
int32_t horovod_paceline_pipelined_sync_next(int32_t process_set, const char* name, int64_t calls) try {
  const auto channel = Get<Pipelined>().Registered(process_set, name);
  if (channel == nullptr) {
    return -1;
  }
  channel->SyncNext(calls);
  return 0;
}
PACELINE_CATCH(-1)
}
