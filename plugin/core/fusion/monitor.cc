#include "core/fusion/monitor.h"

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

void Monitor::On(const local::Arrival& arrival) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto now_ns = arrival.at_ns;
  const auto found = numbers_.find(arrival.name);
  if (found == numbers_.end()) {
    return;
  }
  const int32_t number = found->second;
  if (!steps_.empty() && last_[number].first == begun_ && steps_.back().waiting > 0) {
    Realign();
  }
  if (steps_.empty() || last_[number].first == begun_) {
    Begin(now_ns);
  }
  Step& step = steps_.back();
  last_[number] = {begun_, step.arrivals.size()};
  step.arrivals.push_back({number, now_ns, 0, step.waiting == 0 && !step.arrivals.empty()});
  ++step.waiting;
}

void Monitor::Begin(int64_t now_ns) {
  Step step;
  step.start_ns = now_ns;
  Keep(steps_, std::move(step), kSteps + 1);
  ++begun_;
}

void Monitor::Realign() {
  Step& ending = steps_.back();
  size_t first = 0;  // of the arrivals that belong to the next step
  int64_t longest_ns = -1;
  for (size_t n = 1; n < ending.arrivals.size(); ++n) {
    const int64_t pause_ns = ending.arrivals[n].at_ns - ending.arrivals[n - 1].at_ns;
    if (ending.arrivals[n].alone && pause_ns > longest_ns) {
      first = n;
      longest_ns = pause_ns;
    }
  }
  if (first == 0) {
    return;
  }
  Step next;
  next.start_ns = ending.arrivals[first].at_ns;
  next.arrivals.assign(ending.arrivals.begin() + static_cast<std::ptrdiff_t>(first), ending.arrivals.end());
  next.arrivals[0].alone = false;
  steps_.clear();
  steps_.push_back(std::move(next));
  ++begun_;
  for (size_t n = 0; n < steps_[0].arrivals.size(); ++n) {
    last_[steps_[0].arrivals[n].number] = {begun_, n};
    steps_[0].waiting += steps_[0].arrivals[n].end_ns == 0 ? 1 : 0;
  }
}

void Monitor::On(const agreed::MessageBegun& message) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++messages_begun_;
  int64_t bytes = 0;
  for (const auto& tensor : message.tensors) {
    bytes += tensor.bytes;
    auto found = numbers_.find(tensor.name);
    if (found == numbers_.end()) {
      if (tensors_.size() == kMostTensors) {
        continue;
      }
      found = numbers_.emplace(tensor.name, static_cast<int32_t>(tensors_.size())).first;
      tensors_.push_back(tensor);
      last_.emplace_back(0, 0);
      message_.push_back(0);
    }
    tensors_[found->second] = tensor;
    message_[found->second] = messages_begun_;
  }
  Keep(messages_, Message{bytes, 0}, kMessages);
}

void Monitor::On(const local::MessageEnded& message) {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t ended = 0;
  for (const auto& name : message.names) {
    const auto found = numbers_.find(name);
    if (found == numbers_.end()) {
      continue;
    }
    ended = message_[found->second];
    const auto [step, place] = last_[found->second];
    const int64_t back = begun_ - step;  // counted from the running step
    if (step > 0 && back < static_cast<int64_t>(steps_.size())) {
      Step& its_step = steps_[steps_.size() - 1 - static_cast<size_t>(back)];
      if (its_step.arrivals[place].end_ns == 0) {
        its_step.arrivals[place].end_ns = message.end_ns;
        --its_step.waiting;
      }
    }
  }
  const auto back = messages_begun_ - ended;
  if (ended > 0 && back < static_cast<int64_t>(messages_.size())) {
    messages_[messages_.size() - 1 - static_cast<size_t>(back)].duration_ns = message.end_ns - message.start_ns;
  }
}

void Monitor::Coordinated(int64_t start_ns, int64_t end_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  Keep(coordination_ns_, end_ns - start_ns, kMessages);
}

void Monitor::Restart(const agreed::RoundEnded& /*at*/) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!steps_.empty()) {
    steps_.erase(steps_.begin(), steps_.end() - 1);
    steps_[0].partial = true;
  }
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

std::vector<bool> Monitor::ReducedInRunningStep() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<bool> reduced(tensors_.size(), false);
  for (size_t n = 0; n < reduced.size(); ++n) {
    reduced[n] = !steps_.empty() && last_[n].first == begun_ && steps_.back().arrivals[last_[n].second].end_ns != 0;
  }
  return reduced;
}

std::vector<bool> Monitor::CameBeforeRunningStep() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<bool> before(tensors_.size(), false);
  for (size_t n = 0; n < before.size(); ++n) {
    before[n] = last_[n].first != begun_;
  }
  return before;
}

int64_t Monitor::steps() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return begun_;
}

std::vector<bool> Monitor::Regular(const std::vector<Seen>& seen, size_t complete) const {
  const auto often = [&](size_t times, size_t of) {
    return times >= std::max<size_t>(static_cast<size_t>(kRegular * static_cast<double>(of)), 1);
  };
  std::vector<bool> regular(seen.size());
  std::vector<std::pair<double, size_t>> order;  // of appearance
  for (size_t number = 0; number < seen.size(); ++number) {
    regular[number] = often(seen[number].ready_ns.size(), complete);
    if (regular[number]) {
      order.emplace_back(MedianSeconds(seen[number].ready_ns), number);
    }
  }
  std::sort(order.begin(), order.end());
  size_t values = order.size();  // from this one on
  for (size_t n = order.size(); n > 0 && tensors_[order[n - 1].second].bytes <= kValue_bytes; --n) {
    const Seen& one = seen[order[n - 1].second];
    if (one.alone > 0 && often(one.alone, one.ready_ns.size())) {
      values = n - 1;
    }
  }
  for (; values < order.size(); ++values) {
    regular[order[values].second] = false;
  }
  return regular;
}

Measured Monitor::Measure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Measured measured;
  measured.ready_s.assign(tensors_.size(), -1);
  measured.coordination_s = MedianSeconds({coordination_ns_.begin(), coordination_ns_.end()});
  const size_t first = !steps_.empty() && steps_[0].partial ? 1 : 0;
  if (steps_.size() < first + 2) {
    return measured;
  }
  const size_t last = steps_.size() - 1;  // it is still running
  const size_t complete = last - first;
  std::vector<Seen> seen(tensors_.size());
  for (size_t s = first; s < last; ++s) {
    for (const auto& arrival : steps_[s].arrivals) {
      seen[arrival.number].ready_ns.push_back(arrival.at_ns - steps_[s].start_ns);
      seen[arrival.number].alone += arrival.alone ? 1 : 0;
    }
  }
  const auto regular = Regular(seen, complete);
  std::vector<int64_t> step_ns, exposed_ns;
  for (size_t s = first; s < last; ++s) {
    int64_t last_arrival_ns = steps_[s].start_ns;
    int64_t last_end_ns = last_arrival_ns;
    for (const auto& arrival : steps_[s].arrivals) {
      if (regular[arrival.number]) {
        last_arrival_ns = std::max(last_arrival_ns, arrival.at_ns);
        last_end_ns = std::max(last_end_ns, arrival.end_ns);
      }
    }
    step_ns.push_back(steps_[s + 1].start_ns - steps_[s].start_ns);
    exposed_ns.push_back(std::max<int64_t>(last_end_ns - last_arrival_ns, 0));
  }
  for (size_t number = 0; number < seen.size(); ++number) {
    if (regular[number]) {
      measured.ready_s[number] = MedianSeconds(std::move(seen[number].ready_ns));
    }
  }
  measured.steps = static_cast<int64_t>(complete);
  measured.step_s = MedianSeconds(std::move(step_ns));
  measured.exposed_s = MedianSeconds(std::move(exposed_ns));
  return measured;
}

}  // namespace paceline::core
