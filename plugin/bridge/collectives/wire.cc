#include "bridge/collectives/wire.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/codecs/combine.h"

namespace horovod::paceline {

using ::paceline::core::BytesOf;

Wire::Wire(const Collective& about) : about_(about) {
  const auto& schedule = *about.schedule;
  const auto gives_scratch = [](const auto& one) { return one.kind == Operation::Kind::kCombineAway; };
  if (about.codec != nullptr && std::any_of(schedule.operations.begin(), schedule.operations.end(), gives_scratch)) {
    throw std::invalid_argument(about.name + ": values in scratch memory are sent as they are, without a codec");
  }
  scratch_bytes_ = schedule.scratch_count * BytesOf(about.dtype);
  if (about.codec != nullptr) {
    about.codec->Check(about.dtype);
    scratch_bytes_ = std::max(scratch_bytes_, about.codec->EncodedBytes(about.dtype, schedule.scratch_count));
  }
  scratch_ = MakeMemory(scratch_bytes_ * schedule.scratch_blocks);
  scratch_encoded_.resize(static_cast<size_t>(schedule.scratch_blocks));
}

uint8_t* Wire::InResult(const Operation& operation) const {
  return static_cast<uint8_t*>(about_.result) + operation.offset * BytesOf(about_.dtype);
}

uint8_t* Wire::InScratch(const Operation& operation) const {
  return scratch_.get() + operation.scratch * scratch_bytes_;
}

Wire::Range Wire::Begin(int32_t number) {
  const auto& operation = At(number);
  const auto scratch = operation.scratch >= 0;
  if (about_.codec == nullptr) {
    return {scratch ? InScratch(operation) : InResult(operation),
            static_cast<size_t>(operation.count * BytesOf(about_.dtype))};
  }
  if (scratch && operation.kind == Operation::Kind::kReceive) {
    scratch_encoded_[static_cast<size_t>(operation.scratch)] = true;
    return {InScratch(operation), static_cast<size_t>(about_.codec->EncodedBytes(about_.dtype, operation.count))};
  }
  return Encoded(number, operation);
}

Wire::Range Wire::Encoded(int32_t number, const Operation& operation) {
  const auto bytes = about_.codec->EncodedBytes(about_.dtype, operation.count);
  auto* data = (flying_[number] = MakeMemory(bytes)).get();
  if (operation.kind == Operation::Kind::kSend) {
    // A rank gives each element away once, and settles it once. What was settled encodes to the same bytes again.
    const auto again = operation.adopt && (Forwards(operation) || !settled_.insert(operation.offset).second);
    if (about_.encode && !again) {
      about_.encode(operation.offset, operation.count, data);
    } else {
      about_.codec->Encode(about_.dtype, InResult(operation), operation.count, data);
    }
    if (operation.adopt && !again) {
      about_.codec->Decode(about_.dtype, data, operation.count, InResult(operation));
    }
  }
  return {data, static_cast<size_t>(bytes)};
}

// Whether the range came from another rank, which has settled it.
bool Wire::Forwards(const Operation& operation) const {
  return std::any_of(operation.after.begin(), operation.after.end(), [&](int32_t earlier) {
    return earlier >= 0 && At(earlier).kind == Operation::Kind::kReceive && At(earlier).scratch < 0 &&
           At(earlier).offset == operation.offset;
  });
}

void Wire::Over(int32_t number) {
  const auto found = flying_.find(number);
  if (found == flying_.end()) {
    return;
  }
  const auto& operation = At(number);
  if (operation.kind == Operation::Kind::kReceive) {
    about_.codec->Decode(about_.dtype, found->second.get(), operation.count, InResult(operation));
  }
  flying_.erase(found);
}

void Wire::Compute(const Operation& operation) {
  switch (operation.kind) {
    case Operation::Kind::kCombine:
      return Combine(operation);
    case Operation::Kind::kCombineAway:
      return ::paceline::core::Combine(about_.dtype, about_.op, InScratch(operation), InResult(operation),
                                       operation.count);
    case Operation::Kind::kCopy:
      return Copy(operation);
    default:
      throw std::logic_error("sends and receives are the transport's");
  }
}

void Wire::Combine(const Operation& operation) {
  if (scratch_encoded_[static_cast<size_t>(operation.scratch)]) {
    about_.codec->DecodeCombine(about_.dtype, about_.op, InScratch(operation), operation.count, InResult(operation));
  } else {
    ::paceline::core::Combine(about_.dtype, about_.op, InResult(operation), InScratch(operation), operation.count);
  }
}

void Wire::Copy(const Operation& operation) {
  scratch_encoded_[static_cast<size_t>(operation.scratch)] = false;
  std::memcpy(InScratch(operation), InResult(operation), static_cast<size_t>(operation.count * BytesOf(about_.dtype)));
}

}  // namespace horovod::paceline
