#include "core/pipelined/slots.h"

#include <algorithm>

namespace paceline::core {

int32_t Pipeline::StartNext() {
  if (in_flight_ >= 0 || queue_.empty()) {
    return -1;
  }
  in_flight_ = queue_.front();
  queue_.pop_front();
  slots_[static_cast<size_t>(in_flight_)] = Slot::kInFlight;
  return in_flight_;
}

Pipeline::Todo Pipeline::Exchange() {
  Todo todo;
  todo.exchange = next_;
  todo.answered = slots_[static_cast<size_t>(next_)] == Slot::kDone;
  slots_[static_cast<size_t>(next_)] = Slot::kQueued;
  queue_.push_back(next_);
  next_ = (next_ + 1) % static_cast<int32_t>(slots_.size());
  todo.start = StartNext();
  return todo;
}

Pipeline::Todo Pipeline::Call() {
  const Slot state = slots_[static_cast<size_t>(next_)];
  if (state == Slot::kQueued || state == Slot::kInFlight) {
    waiting_ = true;
    return {};
  }
  return Exchange();
}

Pipeline::Todo Pipeline::Performed() {
  const int32_t performed = in_flight_;
  slots_[static_cast<size_t>(performed)] = Slot::kDone;
  in_flight_ = -1;
  if (waiting_ && performed == next_) {
    waiting_ = false;
    return Exchange();
  }
  Todo todo;
  todo.start = StartNext();
  return todo;
}

std::vector<int32_t> Pipeline::Filled() const {
  std::vector<int32_t> filled;
  const auto count = static_cast<int32_t>(slots_.size());
  for (int32_t n = 0; n < count; ++n) {
    const int32_t slot = (next_ + n) % count;
    if (slots_[static_cast<size_t>(slot)] != Slot::kEmpty) {
      filled.push_back(slot);
    }
  }
  return filled;
}

bool Pipeline::quiet() const { return in_flight_ < 0 && queue_.empty() && !waiting_; }

void Pipeline::Clear() {
  std::fill(slots_.begin(), slots_.end(), Slot::kEmpty);
  next_ = 0;
}

int32_t Pipeline::Put() {
  if (slots_[static_cast<size_t>(next_)] != Slot::kEmpty) {
    return -1;
  }
  const int32_t slot = next_;
  slots_[static_cast<size_t>(slot)] = Slot::kDone;
  next_ = (next_ + 1) % static_cast<int32_t>(slots_.size());
  return slot;
}

}  // namespace paceline::core
