// What happened in each training step: when every tensor was handed in and how long every collective took.

#ifndef PACELINE_CORE_RECORD_RECORDER_H
#define PACELINE_CORE_RECORD_RECORDER_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace paceline::core {

// Which collective was performed. The numbers are part of the snapshot format (plugin/native/library.py names them).
enum class CollectiveKind : int32_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kAlltoall = 3,
  kReducescatter = 4,
  kAdasum = 5,
  kJoin = 6,
  kBarrier = 7,
  kError = 8,
};

// A tensor as its owner handed it in.
struct TensorInfo {
  std::string name;
  int64_t bytes = 0;
  int32_t dtype = 0;  // Horovod's number of the data type
  int32_t process_set = 0;
};

// One executed message; tensors that were merged into it stand together.
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllreduce;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t bytes = 0;
  std::vector<int32_t> tensors;  // ids in order of first arrival
};

// Everything between two beginnings of a step on one rank.
struct Step {
  int64_t index = 0;
  int64_t start_ns = 0;
  int64_t coordination_rounds = 0;
  std::vector<std::pair<int32_t, int64_t>> arrivals;  // tensor id, time
  std::vector<Collective> collectives;
};

// Sums since the library was loaded, whether or not steps are recorded.
struct Counters {
  int64_t coordination_rounds = 0;
  int64_t messages = 0;
  int64_t tensors = 0;
  int64_t bytes = 0;
};

// Medians over the last complete steps in memory, in seconds; negative where none is known.
struct Pace {
  int64_t steps = 0;      // that have begun since the start
  double step_s = -1;     // from the first arrival of a step to that of the next
  double exposed_s = -1;  // from its last arrival to the end of its last message, at most to the next step
};

// The record as two flat buffers, so that it crosses a C interface.
//
// words: number of tensors, then per tensor: bytes, dtype, process set; number of steps, then per step: index,
// start_ns, coordination rounds, number of arrivals, (tensor id, t_ns) each, number of collectives, and for each of
// these: kind, start_ns, end_ns, bytes, number of tensors, tensor ids.
// names: the tensors' names in order of id, each ended by a NUL byte.
struct Snapshot {
  std::vector<int64_t> words;
  std::string names;
};

// Records arrivals and collectives of the last `keep_steps` steps. A step begins with the first tensor whose name has
// already arrived in the running step: a model's gradients have each a name and arrive once a step. A tensor handed
// in under a name that never repeats (a metric) belongs to the running step.
//
// All times are nanoseconds of one steady clock of the caller's choice, relative to the start of recording. Methods
// may be called from any thread.
class Recorder {
 public:
  // Further names, of a program that names its tensors anew in every step, are not recorded.
  static constexpr size_t kMostTensors = size_t{1} << 16U;
  // Medians are over at most this number of steps.
  static constexpr size_t kPaceSteps = 24;

  // Begin with an empty record whose times count from `now_ns`.
  void Start(size_t keep_steps, int64_t now_ns);
  // Keep the record, add no more.
  void Stop();
  bool recording() const { return recording_.load(std::memory_order_relaxed); }

  void Arrived(const TensorInfo& tensor, int64_t now_ns);
  void Performed(CollectiveKind kind, const std::vector<std::string>& names, int64_t bytes, int64_t start_ns,
                 int64_t end_ns);
  void Coordinated();

  Snapshot TakeSnapshot() const;
  Pace pace() const;
  Counters counters() const;

 private:
  struct Known {
    TensorInfo info;
    int64_t last_step = -1;  // index of the step in which it last arrived
  };

  int32_t IdOf(const TensorInfo& tensor);
  Step& BeginStep(int64_t start_ns);
  Step* Find(int64_t index);

  // Readers of the counters need no order between them, hence relaxed atomics and no lock on the idle path.
  std::atomic<int64_t> rounds_{0}, messages_{0}, tensors_{0}, bytes_{0};
  std::atomic<bool> recording_{false};

  mutable std::mutex mutex_;  // protects everything below
  size_t keep_steps_ = 0;
  int64_t origin_ns_ = 0;
  int64_t next_step_ = 0;
  std::vector<Known> known_;
  std::unordered_map<std::string, int32_t> ids_;
  std::deque<Step> steps_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_RECORD_RECORDER_H
