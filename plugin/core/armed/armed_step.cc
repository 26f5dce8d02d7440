#include "core/armed/armed_step.h"

#include <algorithm>
#include <utility>

namespace paceline::core {

ArmedStep::ArmedStep(std::vector<int32_t> tensors, int32_t ahead)
    : missing_(std::move(tensors)), ahead_(ahead), last_(static_cast<int32_t>(missing_.size())) {}

ArmedStep::Next ArmedStep::next() const {
  if (ended_ == last_) {
    return Next::kEnd;
  }
  const bool may = begun_ < last_ && begun_ - ended_ < ahead_;
  return may && (flag() || !lacks()) ? Next::kBegin : Next::kWait;
}

void ArmedStep::Begin() {
  carried_ = flag();
  ++begun_;
}

bool ArmedStep::End(bool flagged) {
  const auto message = ended_++;
  if (!flagged) {
    ++done_;
    return true;
  }
  if (done_ == message) {  // the first one
    last_ = std::min(last_, message + ahead_);
  }
  Raise(Attention::kOthers);
  return false;
}

}  // namespace paceline::core
