// The C entry points of recording, which plugin/native/library.py calls through ctypes.

#include <cstdint>

#include "bridge/c_boundary.h"
#include "bridge/participants.h"
#include "bridge/record/recording.h"
#include "bridge/told.h"

namespace {

paceline::core::Recorder& TheRecorder() { return horovod::paceline::Get<horovod::paceline::Recording>().recorder(); }

// The snapshot that the last horovod_paceline_record_take made; one caller at a time.
paceline::core::Snapshot& Taken() {
  static auto* taken = new paceline::core::Snapshot;
  return *taken;
}

}  // namespace

extern "C" {

void horovod_paceline_record_start(int64_t keep_steps) try {
  TheRecorder().Start(keep_steps < 1 ? 1 : static_cast<size_t>(keep_steps),
                      horovod::paceline::Nanoseconds(horovod::paceline::Clock::now()));
}
PACELINE_CATCH()

void horovod_paceline_record_stop() try { TheRecorder().Stop(); }
PACELINE_CATCH()

// Takes a snapshot and returns its number of 8-byte words and, in *names_bytes, the length of its names.
int64_t horovod_paceline_record_take(int64_t* names_bytes) try {
  Taken() = TheRecorder().TakeSnapshot();
  *names_bytes = static_cast<int64_t>(Taken().names.size());
  return static_cast<int64_t>(Taken().words.size());
}
PACELINE_CATCH(-1)

const int64_t* horovod_paceline_record_words() try { return Taken().words.data(); }
PACELINE_CATCH(nullptr)
const char* horovod_paceline_record_names() try { return Taken().names.data(); }
PACELINE_CATCH(nullptr)

// The fields of paceline.native.library.Pace.
const char* horovod_paceline_record_pace() try {
  const auto pace = TheRecorder().pace();
  return horovod::paceline::Told(
      paceline::core::Json().Put("steps", pace.steps).Put("step_s", pace.step_s).Put("exposed_s", pace.exposed_s));
}
PACELINE_CATCH(nullptr)

// Since the library was loaded.
const char* horovod_paceline_counters() try {
  const auto counters = TheRecorder().counters();
  return horovod::paceline::Told(paceline::core::Json()
                                     .Put("coordination_rounds", counters.coordination_rounds)
                                     .Put("messages", counters.messages)
                                     .Put("tensors", counters.tensors)
                                     .Put("bytes", counters.bytes));
}
PACELINE_CATCH(nullptr)
}
