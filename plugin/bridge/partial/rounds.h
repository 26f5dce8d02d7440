// Partial collectives (eager-SGD): allreduce calls that do not wait for ranks that are late.

#ifndef PACELINE_BRIDGE_PARTIAL_ROUNDS_H
#define PACELINE_BRIDGE_PARTIAL_ROUNDS_H

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bridge/cpu_tensor.h"
#include "bridge/exchange.h"
#include "bridge/partial/buffers.h"
#include "bridge/partial/notes.h"
#include "core/partial/round_state.h"
#include "core/partial/votes.h"
#include "horovod/common/common.h"
#include "horovod/common/controller.h"
#include "horovod/common/message.h"
#include "horovod/common/process_set.h"
#include "horovod/common/tensor_queue.h"
#include "horovod/common/timeline.h"

namespace horovod::paceline {

// What a name is registered with: six numbers.
struct PartialSettings : ExchangeSettings {
  static constexpr int32_t kMajority = -1;

  // So many votes make a round ready; kMajority: those of at least half of the ranks; 0: that of the rank that is drawn
  // for it, by `seed`.
  int32_t quorum = 1;
  uint64_t seed = 0;
  int64_t max_lag = 0;   // after missing so many rounds in a row a rank is waited for; 0: never
  bool latest = false;   // a late call is answered with the latest result that it missed, not with the sum of all
  bool counted = false;  // the last element of an answer is the number of fresh contributions in it
  // The last element of a contribution is its weight, by which the others were multiplied: a round's result is divided
  // by the weight that came, and its last element is 1.
  bool weighted = false;

  ::paceline::core::QuorumRule RuleAmong(int32_t ranks) const;
  // Whether calls with these two belong to the same rounds.
  bool Same(const PartialSettings& other) const;
};

// One name on one rank: its rounds, its buffers, and the call that waits.
class PartialChannel : public std::enable_shared_from_this<PartialChannel> {
 public:
  PartialChannel(std::string name, PartialSettings settings, int32_t process_set_id,
                 const std::shared_ptr<common::Controller>& controller,
                 std::shared_ptr<::paceline::core::MemoryPool> memory);

  // As Exchange::Call; a first call is not answered here. `flush`: the tensor's values mean nothing, and the answer is
  // everything that is in send buffers.
  common::Status Call(ExchangeCall call, bool flush);

  // Begin to flush without a call of a framework, if there were calls; no call may follow before Flushed has taken the
  // answer. Again before that: nothing.
  common::Status Flush();
  enum class FlushState : uint8_t { kNone, kWaits, kDone };
  // Whether the answer is there; if so it is taken to `out`, of `size` bytes, unless that is null.
  FlushState Flushed(void* out, int64_t size, common::Status& status);

  // Background thread: whether a vote or note popped from the queue is about a round that has run.
  bool Stale(const common::Request& message) const;
  // Any thread: false until the first round, which waits for all ranks, has run.
  bool HasRun() const;
  // Background thread: a round begins. The tensor in flight is ready, and `queue` has an entry for it.
  void Begin(common::TensorQueue& queue, common::Timeline& timeline);
  // Any thread: false while a call waits or a round is under way.
  bool Save(PartialState& state) const;
  // Go on from there, on all ranks at once. False, and nothing is done: as above, or calls had another shape or type.
  bool Restore(const PartialState& state);
  ::paceline::core::RoundState::Counters counters() const;
  common::TensorShape shape() const;
  common::DataType dtype() const;
  const PartialSettings& settings() const { return settings_; }
  ::paceline::core::QuorumRule rule() const { return settings_.RuleAmong(size_); }
  // What is wrong with a tensor that has another shape or type than those of the rounds before; `where` it was found.
  std::string Misfit(common::DataType dtype, const common::TensorShape& shape, const std::string& where = "") const;

 private:
  using Reply = ::paceline::core::RoundState::Reply;

  struct Waiting {
    std::shared_ptr<common::Tensor> tensor;  // read when a round begins with the call's contribution
    std::shared_ptr<common::Tensor> output;
    common::StatusCallback callback;
  };

  // Under the lock.
  common::Status CanReduce(const common::Tensor& tensor, const Reducing& reducing) const;
  bool Fits(const common::Tensor& tensor) const;
  common::Request MisfitOf(const common::Tensor& tensor) const;
  // Under entering_: the tensor in flight is put into Horovod's table.
  common::Status Enter(common::TensorQueue& queue, common::Request request);
  common::Request Nothing() const;
  common::Request Vote(PartialNews news) const;
  void Performed(const common::Status& status);
  // Under the lock: a call, and where its contribution goes.
  Reply Contribute(const common::Tensor& tensor, common::Tensor& output);
  // Writes the number of fresh contributions to an answer, if the caller wants it.
  void Count(common::Tensor& output, int64_t fresh) const;
  // Where the timeline has this name's rounds: what each took along on this rank, and how many were in time.
  std::string Track() const { return name_ + ".rounds"; }

  const std::string name_;
  const PartialSettings settings_;
  const int32_t process_set_id_;
  const std::weak_ptr<common::Controller> controller_;
  const int32_t rank_, size_;  // in and of the process set

  // Protects the order of entries in Horovod's table. Taken before Horovod's lock of that table, which is taken before
  // mutex_: a call that fails is told while Horovod holds its lock.
  std::mutex entering_;
  common::TensorQueue* queue_ = nullptr;  // of the world in which calls are made
  mutable std::mutex mutex_;              // protects everything below
  ::paceline::core::RoundState state_;
  Reducing reducing_;
  RoundBuffers buffers_;
  bool queued_ = false;                   // Horovod's table has an entry of this name
  common::Timeline* timeline_ = nullptr;  // of the round under way, if it is written
  Waiting waiting_;
  FlushState flush_ = FlushState::kNone;
  std::shared_ptr<CpuTensor> flushed_;
  common::Status failed_ = common::Status::OK();
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PARTIAL_ROUNDS_H
