// The C entry points of the pipelined exchange, which plugin/pipelined/settings.py calls through ctypes.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "bridge/meeting.h"
#include "bridge/runtime.h"

using horovod::paceline::GetRuntime;
using horovod::paceline::HostTensor;
using horovod::paceline::MarkOf;

extern "C" {

// Waits, at most `limit_s`, until nothing of this marked name travels; returns the number of results in flight, or -1
// and in `error` what went wrong. A name without calls has none.
int32_t horovod_paceline_pipelined_settle(const char* name, int32_t process_set, double limit_s, char* error,
                                          int64_t capacity) {
  const auto channel = GetRuntime().channels.Find(name, process_set);
  if (channel == nullptr) {
    return 0;
  }
  const auto status = channel->Settle(limit_s);
  if (!status.ok()) {
    std::strncpy(error, status.reason().c_str(), static_cast<size_t>(capacity) - 1);
    error[capacity - 1] = '\0';
    return -1;
  }
  return static_cast<int32_t>(channel->Results().size());
}

// Waits, at most `limit_s`, until nothing travels under any name; 1 if that is so.
int32_t horovod_paceline_pipelined_settle_all(double limit_s) { return GetRuntime().channels.Settle(limit_s) ? 1 : 0; }

// Copies result `index`, counted from the oldest, and returns its size in bytes; -1 if there is none, or not so large.
int64_t horovod_paceline_pipelined_result(const char* name, int32_t process_set, int32_t index, void* out,
                                          int64_t capacity) {
  const auto channel = GetRuntime().channels.Find(name, process_set);
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

// The dimensions of result `index` and Horovod's number of its type; returns how many dimensions, -1 if there is no
// such result or it has more than `most`.
int32_t horovod_paceline_pipelined_describe(const char* name, int32_t process_set, int32_t index, int64_t* dims,
                                            int32_t most, int32_t* dtype) {
  const auto channel = GetRuntime().channels.Find(name, process_set);
  if (channel == nullptr) {
    return -1;
  }
  const auto results = channel->Results();
  if (index < 0 || index >= static_cast<int32_t>(results.size())) {
    return -1;
  }
  const auto& result = *results[static_cast<size_t>(index)];
  const auto shape = result.shape();
  if (shape.dims() > most) {
    return -1;
  }
  for (int n = 0; n < shape.dims(); ++n) {
    dims[n] = shape.dim_size(n);
  }
  *dtype = static_cast<int32_t>(result.dtype());
  return shape.dims();
}

// Waits, at most `limit_s`, for all ranks of the process set to call this under the same name; `least` and `most` are
// then the smallest and the largest of their `values`. Returns 0, or -1 and in `error` why not.
int32_t horovod_paceline_pipelined_meet(const char* name, int32_t process_set, int32_t count, const int64_t* values,
                                        int64_t* least, int64_t* most, double limit_s, char* error, int64_t capacity) {
  const auto met = horovod::paceline::Meet(name, process_set, {values, values + count}, limit_s);
  if (!met.status.ok()) {
    std::strncpy(error, met.status.reason().c_str(), static_cast<size_t>(capacity) - 1);
    error[capacity - 1] = '\0';
    return -1;
  }
  std::copy(met.least.begin(), met.least.end(), least);
  std::copy(met.most.begin(), met.most.end(), most);
  return 0;
}

// As if no call of this name had been made.
void horovod_paceline_pipelined_drop(const char* name, int32_t process_set) {
  GetRuntime().channels.Drop(name, process_set);
}

// Nothing of this name is in flight any more. Only after settling.
void horovod_paceline_pipelined_clear(const char* name, int32_t process_set) {
  const auto channel = GetRuntime().channels.Find(name, process_set);
  if (channel != nullptr) {
    channel->Clear();
  }
}

// Adds a result, of Horovod's type number `dtype`, as if it had just been reduced. Returns 0, or -1 if K - 1 are in
// flight already or the name has no mark.
int32_t horovod_paceline_pipelined_put(const char* name, int32_t process_set, int32_t dtype, const int64_t* dims,
                                       int32_t count, const void* data) {
  const auto mark = MarkOf(name);
  if (mark.k < 2) {
    return -1;
  }
  horovod::common::TensorShape shape;
  for (int32_t n = 0; n < count; ++n) {
    shape.AddDim(dims[n]);
  }
  auto result = std::make_shared<HostTensor>(static_cast<horovod::common::DataType>(dtype), shape);
  std::memcpy(result->bytes(), data, static_cast<size_t>(result->size()));
  return GetRuntime().channels.Of(name, mark, process_set)->Put(std::move(result)) ? 0 : -1;
}
}
