// The pipelined exchange: allreduce calls that are answered with the result of an earlier call of the same name.

#ifndef PACELINE_BRIDGE_PIPELINED_CHANNEL_H
#define PACELINE_BRIDGE_PIPELINED_CHANNEL_H

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bridge/cpu_tensor.h"
#include "bridge/operations.h"
#include "bridge/reducing.h"
#include "core/pipelined/slots.h"
#include "horovod/common/common.h"

namespace horovod::paceline {

// What one rank has in flight under one name.
class Channel : public ExchangeState, public std::enable_shared_from_this<Channel> {
 public:
  // The message has the name that was called, so that merging, records and the timeline know one tensor by one name.
  // `sync_calls`: so many calls are plain allreduces first.
  Channel(std::string name, int32_t k, int64_t sync_calls);

  // A call is made. True: it is one of those that are plain allreduces.
  bool TakeSync();
  // So many calls from now on are plain allreduces.
  void SyncNext(int64_t calls);

  // A call: `output` will hold the answer when `callback` is called, here or in the background thread. An error if the
  // call cannot be accepted; the callback is then not called.
  common::Status Call(const Reducing& reducing, const std::shared_ptr<common::Tensor>& tensor,
                      const std::shared_ptr<common::Tensor>& output, common::StatusCallback callback);

  // Waits until nothing is in flight, for so long; OK, or what went wrong.
  common::Status Settle(double limit_s);
  // Whether nothing is in flight, or ever will be.
  bool quiet() const;
  // While nothing is in flight: the results in flight from oldest to newest, their removal, and the addition of one.
  std::vector<std::shared_ptr<CpuTensor>> Results() const;
  void Clear();
  bool Put(std::shared_ptr<CpuTensor> result);

 private:
  struct Waiting {
    std::shared_ptr<common::Tensor> tensor, output;
    common::StatusCallback callback;
  };

  // What is left to do outside of the lock.
  struct After {
    int32_t start = -1;
    common::StatusCallback callback;
    common::Status status;
  };

  void Do(const After& after);
  void Performed(const common::Status& status);
  // Under the lock: answer a call from a slot and put its gradient there.
  void Exchange(const ::paceline::core::Pipeline::Todo& todo, const common::Tensor& tensor, common::Tensor& output);
  common::Status Fits(const common::Tensor& tensor) const;

  const std::string name_;
  const int32_t k_;

  mutable std::mutex mutex_;  // protects everything below
  std::condition_variable performed_;
  int64_t sync_calls_;  // still to come
  Reducing reducing_;   // as the last call said
  ::paceline::core::Pipeline pipeline_;
  std::vector<std::shared_ptr<CpuTensor>> slots_;
  Waiting waiting_;
  common::Status failed_;  // what went wrong under this name: from there on every call is answered with it
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PIPELINED_CHANNEL_H
