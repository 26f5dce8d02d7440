#include "core/record/recorder.h"

#include <algorithm>

namespace paceline::core {

namespace {

double LowerMedian_s(std::vector<int64_t>& times_ns) {
  const auto middle = times_ns.begin() + static_cast<std::ptrdiff_t>((times_ns.size() - 1) / 2);
  std::nth_element(times_ns.begin(), middle, times_ns.end());
  return static_cast<double>(*middle) * 1e-9;
}

}  // namespace

void Recorder::Start(size_t keep_steps, int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  keep_steps_ = std::max<size_t>(keep_steps, 1);
  origin_ns_ = now_ns;
  next_step_ = 0;
  known_.clear();
  ids_.clear();
  steps_.clear();
  recording_.store(true, std::memory_order_relaxed);
}

void Recorder::Stop() { recording_.store(false, std::memory_order_relaxed); }

int32_t Recorder::IdOf(const TensorInfo& tensor) {
  auto [position, is_new] = ids_.emplace(tensor.name, static_cast<int32_t>(known_.size()));
  if (is_new) {
    known_.push_back({tensor, -1});
  } else {
    known_[position->second].info = tensor;
  }
  return position->second;
}

Step& Recorder::BeginStep(int64_t start_ns) {
  if (steps_.size() == keep_steps_) {
    steps_.pop_front();
  }
  Step step;
  step.index = next_step_++;
  step.start_ns = start_ns;
  steps_.push_back(std::move(step));
  return steps_.back();
}

Step* Recorder::Find(int64_t index) {
  if (steps_.empty() || index < steps_.front().index || index > steps_.back().index) {
    return nullptr;
  }
  return &steps_[static_cast<size_t>(index - steps_.front().index)];
}

void Recorder::Arrived(const TensorInfo& tensor, int64_t now_ns) {
  if (!recording()) {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (known_.size() >= kMostTensors && ids_.count(tensor.name) == 0) {
    return;
  }
  const int64_t at_ns = now_ns - origin_ns_;
  const int32_t id = IdOf(tensor);
  const bool repeats = !steps_.empty() && known_[id].last_step == steps_.back().index;
  Step& step = steps_.empty() || repeats ? BeginStep(at_ns) : steps_.back();
  step.arrivals.emplace_back(id, at_ns);
  known_[id].last_step = step.index;
}

void Recorder::Performed(CollectiveKind kind, const std::vector<std::string>& names, int64_t bytes, int64_t start_ns,
                         int64_t end_ns) {
  messages_.fetch_add(1, std::memory_order_relaxed);
  tensors_.fetch_add(static_cast<int64_t>(names.size()), std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (!recording()) {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  Collective collective;
  collective.kind = kind;
  collective.start_ns = start_ns - origin_ns_;
  collective.end_ns = end_ns - origin_ns_;
  collective.bytes = bytes;
  int64_t index = -1;
  for (const auto& name : names) {
    auto found = ids_.find(name);
    if (found != ids_.end()) {
      collective.tensors.push_back(found->second);
      index = std::max(index, known_[found->second].last_step);
    }
  }
  // A message whose tensors did not arrive here (a broadcast, a joined rank) belongs to the running step.
  Step* step = index >= 0 ? Find(index) : (steps_.empty() ? nullptr : &steps_.back());
  if (step != nullptr) {
    step->collectives.push_back(std::move(collective));
  }
}

void Recorder::Coordinated() {
  rounds_.fetch_add(1, std::memory_order_relaxed);
  if (!recording()) {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (!steps_.empty()) {
    ++steps_.back().coordination_rounds;
  }
}

Snapshot Recorder::TakeSnapshot() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Snapshot snapshot;
  auto& words = snapshot.words;
  words.push_back(static_cast<int64_t>(known_.size()));
  for (const auto& known : known_) {
    words.insert(words.end(), {known.info.bytes, known.info.dtype, known.info.process_set});
    snapshot.names.append(known.info.name).push_back('\0');
  }
  words.push_back(static_cast<int64_t>(steps_.size()));
  for (const auto& step : steps_) {
    words.insert(words.end(), {step.index, step.start_ns, step.coordination_rounds});
    words.push_back(static_cast<int64_t>(step.arrivals.size()));
    for (const auto& [id, at_ns] : step.arrivals) {
      words.insert(words.end(), {id, at_ns});
    }
    words.push_back(static_cast<int64_t>(step.collectives.size()));
    for (const auto& collective : step.collectives) {
      words.insert(words.end(), {static_cast<int64_t>(collective.kind), collective.start_ns, collective.end_ns,
                                 collective.bytes, static_cast<int64_t>(collective.tensors.size())});
      words.insert(words.end(), collective.tensors.begin(), collective.tensors.end());
    }
  }
  return snapshot;
}

Pace Recorder::pace() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Pace pace;
  pace.steps = next_step_;
  if (steps_.size() < 2) {
    return pace;
  }
  std::vector<int64_t> step_ns, exposed_ns;
  for (size_t n = steps_.size() - std::min(steps_.size(), kPaceSteps + 1); n + 1 < steps_.size(); ++n) {
    const auto& step = steps_[n];
    const auto next_ns = steps_[n + 1].start_ns;
    // The first arrival begins the step.
    const auto last_ns = step.arrivals.back().second;
    auto end_ns = last_ns;
    for (const auto& collective : step.collectives) {
      end_ns = std::max(end_ns, collective.end_ns);
    }
    step_ns.push_back(next_ns - step.start_ns);
    exposed_ns.push_back(std::max<int64_t>(0, std::min(end_ns, next_ns) - last_ns));
  }
  pace.step_s = LowerMedian_s(step_ns);
  pace.exposed_s = LowerMedian_s(exposed_ns);
  return pace;
}

Counters Recorder::counters() const {
  Counters counters;
  counters.coordination_rounds = rounds_.load(std::memory_order_relaxed);
  counters.messages = messages_.load(std::memory_order_relaxed);
  counters.tensors = tensors_.load(std::memory_order_relaxed);
  counters.bytes = bytes_.load(std::memory_order_relaxed);
  return counters;
}

}  // namespace paceline::core
