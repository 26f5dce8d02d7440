#include "bridge/partial/buffers.h"

#include <cstring>

#include "bridge/partial/accumulate.h"
#include "bridge/reducing.h"

namespace horovod::paceline {

using ::paceline::core::Memory;

RoundTensor::RoundTensor(common::DataType dtype, int64_t elements)
    : dtype_(dtype), size_(elements * static_cast<int64_t>(common::DataType_Size(dtype))) {
  shape_.AddDim(elements);
}

void RoundBuffers::Describe(common::DataType dtype, const common::TensorShape& shape) {
  dtype_ = dtype;
  shape_ = shape;
  element_bytes_ = static_cast<size_t>(common::DataType_Size(dtype_));
  in_flight_ = std::make_shared<RoundTensor>(dtype_, elements() + kExtra);
}

void RoundBuffers::Send(const common::Tensor& contribution, bool pending) {
  const auto* data = static_cast<const uint8_t*>(contribution.data());
  if (pending) {
    Add(dtype_, send_.bytes(), data, bytes());
    return;
  }
  if (!send_) {
    send_ = Memory(bytes());
  }
  std::memcpy(send_.bytes(), data, bytes());
}

int64_t RoundBuffers::SendAndAnswer(const common::Tensor& contribution, common::Tensor& output, bool pending) {
  if (send_) {
    Send(contribution, pending);
    return AnswerMissed(output);
  }
  // Late calls need no memory in addition to that of the results.
  SwapHeld(contribution, output, missed_.bytes(), bytes());
  send_ = std::move(missed_);
  return std::exchange(fresh_, 0);
}

void RoundBuffers::Depart(const ::paceline::core::RoundState::Departure& departure, const common::Tensor* call) {
  if (!in_flight_->memory()) {
    in_flight_->memory() = pool_->Take(static_cast<size_t>(in_flight_->size()));
  }
  uint8_t* to = in_flight_->bytes();
  if (departure.fresh) {
    std::memcpy(to, call->data(), bytes());
  } else if (departure.carried > 0) {
    std::memcpy(to, send_.bytes(), bytes());
  } else {
    std::memset(to, 0, bytes());
  }
  if (departure.fresh && departure.carried > 0) {
    Add(dtype_, to, send_.bytes(), bytes());
  }
  const auto extra = static_cast<size_t>(elements());
  SetElement(dtype_, to, extra + kFresh, departure.fresh ? 1 : 0);
  SetElement(dtype_, to, extra + kFlushes, departure.flushing ? 1 : 0);
}

double RoundBuffers::Sum(int64_t extra) const {
  return Element(dtype_, in_flight_->bytes(), static_cast<size_t>(elements() + extra));
}

void RoundBuffers::DivideByWeight() {
  const auto last = static_cast<size_t>(elements()) - 1;
  const double weight = Element(dtype_, in_flight_->bytes(), last);
  if (weight > 0) {  // else all are zeros
    Divide(dtype_, in_flight_->bytes(), last * element_bytes_, weight);
  }
  SetElement(dtype_, in_flight_->bytes(), last, 1);
}

void RoundBuffers::Miss(int64_t fresh, bool latest, bool pending) {
  if (missed_ && !latest) {
    Add(dtype_, missed_.bytes(), in_flight_->bytes(), bytes());
    fresh_ += fresh;
    return;
  }
  if (!missed_) {
    missed_ = send_ && !pending ? std::move(send_) : Memory(bytes());
  }
  std::memcpy(missed_.bytes(), in_flight_->bytes(), bytes());
  fresh_ = fresh;
}

void RoundBuffers::AnswerThis(common::Tensor& output) const {
  std::memcpy(BytesOf(output), in_flight_->bytes(), bytes());
}

int64_t RoundBuffers::AnswerMissed(common::Tensor& output) {
  std::memcpy(BytesOf(output), missed_.bytes(), bytes());
  missed_ = Memory();
  return std::exchange(fresh_, 0);
}

void RoundBuffers::End(bool pending) {
  pool_->Release(std::move(in_flight_->memory()));
  if (!pending) {
    send_ = Memory();
  }
}

void RoundBuffers::Save(PartialState& state) const {
  state.dtype = dtype_;
  state.shape = shape_;
  state.fresh = fresh_;
  state.send.assign(bytes(), 0);
  state.results.assign(bytes(), 0);
  if (state.pending > 0) {
    std::memcpy(state.send.data(), send_.bytes(), bytes());
  }
  if (missed_) {
    std::memcpy(state.results.data(), missed_.bytes(), bytes());
  }
}

void RoundBuffers::Restore(const PartialState& state) {
  const auto restore = [&](Memory& to, const std::vector<uint8_t>& values, bool any) {
    to = any ? Memory(bytes()) : Memory();
    if (any) {
      std::memcpy(to.bytes(), values.data(), bytes());
    }
  };
  restore(send_, state.send, state.pending > 0);
  restore(missed_, state.results, state.missed > 0);
  fresh_ = state.fresh;
}

}  // namespace horovod::paceline
