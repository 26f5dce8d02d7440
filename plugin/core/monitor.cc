#include "core/monitor.h"

#include <algorithm>
#include <utility>

namespace paceline::core {

namespace {

// The median; negative for none.
double MedianSeconds(std::vector<int64_t> times_ns) {
  if (times_ns.empty()) {
    return -1;
  }
  const auto middle = times_ns.begin() + static_cast<std::ptrdiff_t>(times_ns.size() / 2);
  std::nth_element(times_ns.begin(), middle, times_ns.end());
  return static_cast<double>(*middle) * 1e-9;
}

template <typename T>
void Keep(std::deque<T>& kept, T value, size_t most) {
  if (kept.size() == most) {
    kept.pop_front();
  }
  kept.push_back(std::move(value));
}

}  // namespace

void Monitor::Arrived(const std::string& name, int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = numbers_.find(name);
  if (found == numbers_.end()) {
    return;
  }
  const int32_t number = found->second;
  if (steps_.empty() || last_step_[number] == begun_) {
    Step step;
    step.start_ns = now_ns;
    Keep(steps_, std::move(step), kSteps + 1);
    ++begun_;
  }
  steps_.back().arrivals.emplace_back(number, now_ns);
  steps_.back().last_arrival_ns = now_ns;
  last_step_[number] = begun_;
}

void Monitor::Reduced(const std::vector<ReducedTensor>& tensors, int64_t bytes, int64_t start_ns, int64_t end_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t step = 0;
  for (const auto& tensor : tensors) {
    auto found = numbers_.find(tensor.name);
    if (found == numbers_.end()) {
      if (tensors_.size() == kMostTensors) {
        continue;
      }
      found = numbers_.emplace(tensor.name, static_cast<int32_t>(tensors_.size())).first;
      tensors_.push_back(tensor);
      last_step_.push_back(0);
    }
    tensors_[found->second] = tensor;
    step = std::max(step, last_step_[found->second]);
  }
  // Counted from the running step back: 0 is the running one.
  const int64_t back = begun_ - step;
  if (step > 0 && back < static_cast<int64_t>(steps_.size())) {
    steps_[steps_.size() - 1 - static_cast<size_t>(back)].last_end_ns = end_ns;
  }
  Keep(messages_, Message{bytes, end_ns - start_ns}, kMessages);
}

void Monitor::Coordinated(int64_t start_ns, int64_t end_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  Keep(coordination_ns_, end_ns - start_ns, kMessages);
}

void Monitor::Restart() {
  std::lock_guard<std::mutex> lock(mutex_);
  steps_.clear();
  messages_.clear();
  coordination_ns_.clear();
}

int32_t Monitor::NumberOf(const std::string& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? -1 : found->second;
}

std::vector<ReducedTensor> Monitor::tensors() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return tensors_;
}

std::vector<Message> Monitor::messages() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {messages_.begin(), messages_.end()};
}

int64_t Monitor::steps() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return begun_;
}

Measured Monitor::Measure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Measured measured;
  measured.ready_s.assign(tensors_.size(), -1);
  measured.coordination_s = MedianSeconds({coordination_ns_.begin(), coordination_ns_.end()});
  if (steps_.size() < 2) {
    return measured;
  }
  const size_t complete = steps_.size() - 1;  // the last one is still running
  std::vector<std::vector<int64_t>> ready_ns(tensors_.size());
  std::vector<int64_t> step_ns, exposed_ns;
  for (size_t s = 0; s < complete; ++s) {
    const Step& step = steps_[s];
    for (const auto& [number, at_ns] : step.arrivals) {
      ready_ns[number].push_back(at_ns - step.start_ns);
    }
    step_ns.push_back(steps_[s + 1].start_ns - step.start_ns);
    exposed_ns.push_back(std::max<int64_t>(step.last_end_ns - step.last_arrival_ns, 0));
  }
  const auto needed = static_cast<size_t>(kRegular * static_cast<double>(complete));
  for (size_t number = 0; number < ready_ns.size(); ++number) {
    if (ready_ns[number].size() >= std::max<size_t>(needed, 1)) {
      measured.ready_s[number] = MedianSeconds(std::move(ready_ns[number]));
    }
  }
  measured.steps = static_cast<int64_t>(complete);
  measured.step_s = MedianSeconds(std::move(step_ns));
  measured.exposed_s = MedianSeconds(std::move(exposed_ns));
  return measured;
}

}  // namespace paceline::core
