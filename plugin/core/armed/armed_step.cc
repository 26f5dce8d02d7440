#include "core/armed/armed_step.h"

#include <algorithm>
#include <utility>

namespace paceline::core {

const char* Words(Attention why) {
  switch (why) {
    case Attention::kNone:
      return "";
    case Attention::kMissing:
      return "a gradient did not come in time";
    case Attention::kOther:
      return "another operation was waited for before the step's last gradient";
    case Attention::kRepeated:
      return "a gradient came twice before another one came";
    case Attention::kChanged:
      return "a gradient changed its shape, type, operation or codec";
    case Attention::kOffered:
      return "gradients were submitted before those of the first group";
    case Attention::kJoined:
      return "this rank has joined";
    case Attention::kShutdown:
      return "this rank shuts down";
    case Attention::kOthers:
      return "another rank aborted them";
  }
  return "";
}

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
