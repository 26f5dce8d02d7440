// Messages that a thread of a framework sends to other ranks and receives from them, beside Horovod's collectives.

#ifndef PACELINE_BRIDGE_STAGES_STAGE_COMMUNICATOR_H
#define PACELINE_BRIDGE_STAGES_STAGE_COMMUNICATOR_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bridge/transport.h"
#include "bridge/world_end.h"
#include "core/transport/worker.h"

namespace horovod::paceline {

// Whose messages they are: a process set, and the ranks in it by their numbers in the world.
struct CommunicatorPlace {
  int32_t process_set_id = 0;
  std::vector<int> ranks;
};

// Messages of one tag between two ranks are received in the order in which they were sent, and a thread of its own
// hands them to the transport: to give a message to the kernel takes longer than to tell that thread, which has nothing
// else to do. So the transport must be one that says both of itself. What is in flight when something fails is given
// up, with the connections that Horovod uses, too: the world ends with it.
//
// One thread at a time; another one that comes waits for it.
class StageCommunicator {
 public:
  enum class Outcome { kFailed = -1, kNotYet = 0, kDone = 1 };

  StageCommunicator(std::unique_ptr<Transport> transport, CommunicatorPlace place, const WorldEnd& end);

  // In the process set.
  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }
  double limit_s() const { return limit_s_; }

  // The number of the operation, at once; -1: failed. `data` is the caller's, and stays until Wait says kDone or
  // kFailed.
  int64_t Send(int32_t peer, uint64_t tag, const void* data, size_t bytes);
  int64_t Receive(int32_t peer, uint64_t tag, void* data, size_t bytes);
  // What has become of an operation within so long.
  Outcome Wait(int64_t operation, double limit_s);
  // The operation has been waited for in vain for so long: it is given up.
  void Abort(int64_t operation, double limit_s);
  // This rank cannot go on for this reason, which all ranks hear.
  void NotifyFailure(const std::string& text);
  // Nothing comes from here on. What is in flight is given up.
  void Close();
  // Another world begins: as Close, and nobody is told. Any thread, at any time; returns at once.
  void Forget();

  // Why it has failed; empty if it has not.
  std::string Why();
  // Whether that is because Horovod was shut down, and not because anything went wrong.
  bool ShutDown();

 private:
  struct Operation {
    int32_t peer = 0;
    uint64_t tag = 0;
    size_t bytes = 0;
    bool receive = false;
  };

  // All with the lock.
  int64_t Post(const Operation& operation, void* data);
  // Hears of what has completed by `until`, and waits for the first that does; false: there was none.
  bool Hear(Transport::Clock::time_point until);
  // Whether messages can go; if not, it has failed while it did what `doing` says.
  bool Usable(const std::string& doing);
  // Whether the world has ended around it, so that it has failed.
  bool Over(const std::string& doing);
  void Fail(const std::string& doing, const std::string& error, const WorldEnd::Explain& explain);
  // Nobody touches memory of operations from here on.
  void Drop(const std::string& why);

  std::string Name(int32_t peer) const;
  std::string Self() const;
  std::string Doing(const Operation& operation) const;

  const CommunicatorPlace place_;
  const WorldEnd& end_;
  int32_t rank_ = 0, size_ = 0;
  double limit_s_ = 0;
  std::atomic<bool> forgotten_{false};

  std::mutex mutex_;                                  // protects everything below
  std::unique_ptr<Transport> transport_;              // null: failed
  std::unique_ptr<::paceline::core::Worker> poster_;  // sends and receives by the transport; null with it
  uint64_t made_ = 0;                                 // as the transport counts them
  std::map<uint64_t, Operation> in_flight_;
  std::string why_;
  bool shut_down_ = false;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_STAGES_STAGE_COMMUNICATOR_H
