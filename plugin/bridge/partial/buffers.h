// Memory of a partial collective: contributions not sent yet, the tensor in flight, and results not delivered yet.

#ifndef PACELINE_BRIDGE_PARTIAL_BUFFERS_H
#define PACELINE_BRIDGE_PARTIAL_BUFFERS_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/partial/memory_pool.h"
#include "core/partial/round_state.h"
#include "horovod/common/common.h"

namespace horovod::paceline {

// What a run that goes on needs of one name on one rank. States of all ranks fit together if they have the same
// `rounds`: every contribution is then in a send buffer or in the results of all ranks, answered or missed.
struct PartialState {
  common::DataType dtype = common::DataType::HOROVOD_FLOAT32;
  common::TensorShape shape;
  int64_t rounds = 0;                  // performed
  int64_t pending = 0;                 // contributions in the send buffer
  int64_t missed = 0;                  // rounds that no call was answered with
  int64_t fresh = 0;                   // contributions in their results
  std::vector<uint8_t> send, results;  // the send buffer, and what was missed; zeros where there is none
};

// A vector for Horovod's table of tensors. It has memory only while its round is in flight.
class RoundTensor : public common::Tensor {
 public:
  RoundTensor(common::DataType dtype, int64_t elements);
  // NOLINTNEXTLINE(clang-diagnostic-ignored-qualifiers): as Horovod declares it
  const common::DataType dtype() const override { return dtype_; }
  const common::TensorShape shape() const override { return shape_; }
  const void* data() const override { return memory_.bytes(); }
  int64_t size() const override { return size_; }

  uint8_t* bytes() { return memory_.bytes(); }
  ::paceline::core::Memory& memory() { return memory_; }

 private:
  common::DataType dtype_;
  common::TensorShape shape_;
  int64_t size_;  // in bytes
  ::paceline::core::Memory memory_;
};

// The buffers of one name on one rank; each has memory only while it has values:
//
//   buffer     from                                               to
//   send       a call is late: its round has left                 the next round has ended
//   in flight  a round begins                                     the round has ended; its memory serves the next
//   missed     a round ends that this rank made no call for       its next call
//
// A call that is on time contributes from its own tensor. Not synchronised.
class RoundBuffers {
 public:
  // Elements after the user's in the tensor in flight: whether the contribution is fresh, and whether the rank flushes.
  static constexpr int64_t kFresh = 0, kFlushes = 1, kExtra = 2;

  explicit RoundBuffers(std::shared_ptr<::paceline::core::MemoryPool> pool) : pool_(std::move(pool)) {}

  // Sets the type and shape of all rounds. Before that there is neither.
  void Describe(common::DataType dtype, const common::TensorShape& shape);
  bool described() const { return in_flight_ != nullptr; }
  common::DataType dtype() const { return dtype_; }
  const common::TensorShape& shape() const { return shape_; }
  int64_t elements() const { return shape_.num_elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * element_bytes_; }
  // The same tensor in all rounds: Horovod's table has its address.
  const std::shared_ptr<RoundTensor>& in_flight() const { return in_flight_; }
  bool missed() const { return static_cast<bool>(missed_); }

  // Adds a late contribution to the send buffer. `pending`: the send buffer has others.
  void Send(const common::Tensor& contribution, bool pending);
  // The same, and moves the missed results to `output`, which may be the same tensor. Returns the fresh contributions
  // in the results.
  int64_t SendAndAnswer(const common::Tensor& contribution, common::Tensor& output, bool pending);
  // A round begins: fills the tensor in flight. `call` is the tensor of the waiting call; it is read if it is fresh.
  void Depart(const ::paceline::core::RoundState::Departure& departure, const common::Tensor* call);
  // The sum over ranks of an element after the user's, after the round.
  double Sum(int64_t extra) const;
  // Makes the result a mean: the last element is the sum of the contributions' weights, and becomes 1.
  void DivideByWeight();
  // No call is answered with this result. `latest`: it replaces the results missed before. `pending`: the send buffer
  // has contributions.
  void Miss(int64_t fresh, bool latest, bool pending);
  // Copies the result of this round to `output`, or all missed results, which are then delivered.
  void AnswerThis(common::Tensor& output) const;
  int64_t AnswerMissed(common::Tensor& output);
  // The round has ended, and its result was used. Not to be called for one that failed: an operation of Horovod's may
  // still write.
  void End(bool pending);

  // To and from saved state; `state` has its numbers already.
  void Save(PartialState& state) const;
  void Restore(const PartialState& state);

 private:
  const std::shared_ptr<::paceline::core::MemoryPool> pool_;
  common::DataType dtype_ = common::DataType::HOROVOD_FLOAT32;
  common::TensorShape shape_;
  size_t element_bytes_ = 0;
  std::shared_ptr<RoundTensor> in_flight_;
  ::paceline::core::Memory send_;    // of a round in flight, too: a rank that is late once often is late again
  ::paceline::core::Memory missed_;  // sum of the results that no call was answered with, or the latest
  int64_t fresh_ = 0;                // contributions in `missed_`
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PARTIAL_BUFFERS_H
