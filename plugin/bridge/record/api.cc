// The C entry points of recording, which plugin/native/library.py calls through ctypes.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bridge/c_boundary.h"
#include "bridge/json_text.h"
#include "bridge/participants.h"
#include "bridge/record/recording.h"

namespace {

using horovod::paceline::Recording;

Recording& TheRecording() { return horovod::paceline::Get<Recording>(); }

paceline::core::Recorder& TheRecorder() { return TheRecording().recorder(); }

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
  TheRecording().log().Start();
}
PACELINE_CATCH()

void horovod_paceline_record_stop() try {
  TheRecorder().Stop();
  TheRecording().log().Stop();
}
PACELINE_CATCH()

// The most recent operations of this rank, by column, and the ranks of its process sets. Times are those of the steady
// clock; 0 where the event has not happened.
const char* horovod_paceline_record_operations() try {
  std::vector<std::string> names;
  std::vector<int32_t> kinds, dtypes, process_sets;
  std::vector<int64_t> steps, numbers, submitted_ns, started_ns, completed_ns;
  std::vector<std::vector<int64_t>> shapes;
  for (auto& one : TheRecording().log().Recent()) {
    names.push_back(std::move(one.submission.name));
    kinds.push_back(static_cast<int32_t>(one.submission.kind));
    dtypes.push_back(one.submission.dtype);
    process_sets.push_back(one.submission.process_set);
    shapes.push_back(std::move(one.submission.shape));
    steps.push_back(one.step);
    numbers.push_back(one.number);
    submitted_ns.push_back(one.submitted_ns);
    started_ns.push_back(one.started_ns);
    completed_ns.push_back(one.completed_ns);
  }
  std::vector<std::pair<int32_t, std::vector<int>>> ranks;
  for (auto& [id, of_set] : TheRecording().ProcessSets()) {
    ranks.emplace_back(id, of_set);
  }
  return horovod::paceline::JsonText(paceline::core::Json()
                                         .Put("names", names)
                                         .Put("kinds", kinds)
                                         .Put("dtypes", dtypes)
                                         .Put("process_sets", process_sets)
                                         .Put("shapes", shapes)
                                         .Put("steps", steps)
                                         .Put("numbers", numbers)
                                         .Put("submitted_ns", submitted_ns)
                                         .Put("started_ns", started_ns)
                                         .Put("completed_ns", completed_ns)
                                         .Put("ranks", ranks));
}
PACELINE_CATCH(nullptr)

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

// The steps that were recorded: their number, time and exposed time.
const char* horovod_paceline_record_pace() try {
  const auto pace = TheRecorder().pace();
  return horovod::paceline::JsonText(
      paceline::core::Json().Put("steps", pace.steps).Put("step_s", pace.step_s).Put("exposed_s", pace.exposed_s));
}
PACELINE_CATCH(nullptr)

// Since the library was loaded.
const char* horovod_paceline_counters() try {
  const auto counters = TheRecorder().counters();
  return horovod::paceline::JsonText(paceline::core::Json()
                                         .Put("coordination_rounds", counters.coordination_rounds)
                                         .Put("messages", counters.messages)
                                         .Put("tensors", counters.tensors)
                                         .Put("bytes", counters.bytes));
}
PACELINE_CATCH(nullptr)
}
