// The pipelined exchange: allreduce calls that are answered with the result of an earlier call of the same name.

#ifndef PACELINE_BRIDGE_PIPELINED_CHANNEL_H
#define PACELINE_BRIDGE_PIPELINED_CHANNEL_H

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bridge/host_tensor.h"
#include "bridge/reducing.h"
#include "core/pipelined/slots.h"
#include "horovod/common/common.h"

namespace horovod {
namespace paceline {

// A call is pipelined if its name has the mark in it that the adapters put there, with the number K. What travels has
// the name without the mark, so that merging, records and the timeline know one tensor by one name.
struct Mark {
  int32_t k = 1;         // 1: not pipelined
  std::string unmarked;  // the name without the mark
};
Mark MarkOf(const std::string& name);

// What one rank has in flight under one name.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  explicit Channel(Mark mark);

  // A call: `output` will hold the answer when `callback` is called, here or in the background thread. An error if the
  // call cannot be accepted; the callback is then not called.
  common::Status Call(const Reducing& reducing, const std::shared_ptr<common::Tensor>& tensor,
                      const std::shared_ptr<common::Tensor>& output, common::StatusCallback callback);

  // Waits until nothing travels, for so long; OK, or what went wrong.
  common::Status Settle(double limit_s);
  // While nothing travels: the results in flight from oldest to newest, their removal, and the addition of one.
  std::vector<std::shared_ptr<HostTensor>> Results() const;
  void Clear();
  bool Put(std::shared_ptr<HostTensor> result);

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

  const Mark mark_;

  mutable std::mutex mutex_;  // protects everything below
  std::condition_variable performed_;
  Reducing reducing_;  // as the last call said
  ::paceline::core::Pipeline pipeline_;
  std::vector<std::shared_ptr<HostTensor>> slots_;
  Waiting waiting_;
  common::Status failed_;  // what went wrong under this name: from there on every call is answered with it
};

// The channels of one library.
class Channels {
 public:
  // A new world: what was in flight is gone.
  void Reset();
  // The channel of a call that is pipelined, made if it is the first.
  std::shared_ptr<Channel> Of(const std::string& name, const Mark& mark, int32_t process_set_id);
  // Null if no call of this name was pipelined.
  std::shared_ptr<Channel> Find(const std::string& name, int32_t process_set_id) const;
  // Waits, for so long in all, until nothing travels under any name; whether that is so.
  bool Settle(double limit_s) const;
  // As if no call of this name had been made.
  void Drop(const std::string& name, int32_t process_set_id);

 private:
  mutable std::mutex mutex_;  // protects the map
  std::map<std::pair<int32_t, std::string>, std::shared_ptr<Channel>> channels_;
};

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_PIPELINED_CHANNEL_H
