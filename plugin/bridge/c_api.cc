// The C entry points that Python calls through ctypes (plugin/native/library.py). Their names contain "horovod" because
// Horovod's linker script hides every other symbol.

#include <chrono>
#include <cstdint>

#include "bridge/runtime.h"

using horovod::paceline::GetRuntime;

namespace {

int64_t Now() { return horovod::paceline::Nanoseconds(std::chrono::steady_clock::now()); }

// The snapshot that the last horovod_paceline_record_take made; one caller at a time.
paceline::core::Snapshot& Taken() {
  static auto* taken = new paceline::core::Snapshot;
  return *taken;
}

}  // namespace

extern "C" {

// Raised whenever these entry points or the hooks change their meaning.
int32_t horovod_paceline_interface() { return 1; }

void horovod_paceline_record_start(int64_t keep_steps) {
  GetRuntime().recorder.Start(keep_steps < 1 ? 1 : static_cast<size_t>(keep_steps), Now());
}

void horovod_paceline_record_stop() { GetRuntime().recorder.Stop(); }

// Takes a snapshot and returns its number of 8-byte words and, in *names_bytes, the length of its names.
int64_t horovod_paceline_record_take(int64_t* names_bytes) {
  Taken() = GetRuntime().recorder.TakeSnapshot();
  *names_bytes = static_cast<int64_t>(Taken().names.size());
  return static_cast<int64_t>(Taken().words.size());
}

const int64_t* horovod_paceline_record_words() { return Taken().words.data(); }
const char* horovod_paceline_record_names() { return Taken().names.data(); }

// out[0..3]: coordination rounds, messages, tensors, bytes since the library was loaded.
void horovod_paceline_counters(int64_t* out) {
  const auto counters = GetRuntime().recorder.counters();
  out[0] = counters.coordination_rounds;
  out[1] = counters.messages;
  out[2] = counters.tensors;
  out[3] = counters.bytes;
}
}
