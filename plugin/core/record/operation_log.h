// The most recent operations of this rank, for the flight recorder's dump of a run that failed.

#ifndef PACELINE_CORE_RECORD_OPERATION_LOG_H
#define PACELINE_CORE_RECORD_OPERATION_LOG_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/record/recorder.h"

namespace paceline::core {

// A collective call of this rank.
struct Submission {
  std::string name;
  CollectiveKind kind = CollectiveKind::kAllreduce;
  int32_t dtype = 0;  // Horovod's number of the data type
  int32_t process_set = 0;
  std::vector<int64_t> shape;
};

// Times are those of the caller's clock; 0 where the event has not happened.
struct LoggedOperation {
  Submission submission;
  int64_t step = 0;
  int64_t number = 0;  // submissions of this name in its process set, up to this one
  int64_t submitted_ns = 0;
  int64_t started_ns = 0;
  int64_t completed_ns = 0;
};

// Keeps operations by whole steps. A step begins when a name is submitted that the running step has already, so ranks
// that submit the same names in different orders agree on the step and the number of every operation, and drop the same
// operations. Methods may be called from any thread.
class OperationLog {
 public:
  // Drop everything and keep operations from here on.
  void Start();
  void Stop();
  bool keeping() const { return keeping_.load(std::memory_order_relaxed); }
  // A new world: its ranks count from the beginning.
  void Clear();

  void Submitted(Submission submission, int64_t now_ns);
  void Started(int32_t process_set, const std::string& name, int64_t now_ns);
  void Completed(int32_t process_set, const std::string& name, int64_t now_ns);

  std::vector<LoggedOperation> Recent() const;  // in order of submission

 private:
  using Key = std::pair<int32_t, std::string>;
  struct Place {
    int64_t step = 0;
    size_t position = 0;
    int64_t number = 0;
  };

  void DropOldSteps();
  LoggedOperation* Latest(int32_t process_set, const std::string& name);

  std::atomic<bool> keeping_{false};

  mutable std::mutex mutex_;  // protects everything below
  int64_t first_step_ = 0;    // number of the oldest step that is kept
  size_t kept_ = 0;           // operations of all kept steps
  std::deque<std::vector<LoggedOperation>> steps_;
  std::map<Key, Place> latest_;  // of the names in kept steps
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_RECORD_OPERATION_LOG_H
