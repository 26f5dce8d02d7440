// Point-to-point messages of a framework thread, concurrent with Horovod's collectives.

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

// Ranks of a communicator: a process set, and its members by their ranks in the world.
struct CommunicatorPlace {
  int32_t process_set_id = 0;
  std::vector<int> ranks;
};

// Messages with one tag between two ranks are received in the order of sending. A separate thread passes messages to
// the transport, because passing a message to the kernel takes longer than notifying that thread. So the transport must
// allow calls from another thread and keep the order of messages. A failure aborts all messages in flight and the
// connections, which Horovod uses, too: the world ends.
//
// One thread at a time; a second caller waits for the first one.
class StageCommunicator {
 public:
  enum class Outcome { kFailed = -1, kNotYet = 0, kDone = 1 };

  StageCommunicator(std::unique_ptr<Transport> transport, CommunicatorPlace place, const WorldEnd& end);

  // Rank and size within the process set, and the timeout.
  int32_t rank() const { return rank_; }
  int32_t size() const { return size_; }
  double limit_s() const { return limit_s_; }

  // Begins an operation. Returns its number at once, or -1 if the communicator has failed. The caller owns `data`, and
  // keeps it until Wait returns kDone or kFailed.
  int64_t Send(int32_t peer, uint64_t tag, const void* data, size_t bytes);
  int64_t Receive(int32_t peer, uint64_t tag, void* data, size_t bytes);
  // Waits for an operation for at most `limit_s`.
  Outcome Wait(int64_t operation, double limit_s);
  // Aborts after a timeout: the operation did not end within `limit_s`.
  void Abort(int64_t operation, double limit_s);
  // Sends a failure notice with this text to all ranks, and fails here.
  void NotifyFailure(const std::string& text);
  // Closes the communicator. Messages in flight are aborted.
  void Close();
  // Another world begins: closes without a notice to other ranks. Any thread, at any time; returns at once.
  void Forget();

  // Reason of the failure; empty without a failure.
  std::string Why();
  // Returns true if the reason is a shutdown of Horovod, without an error.
  bool ShutDown();

 private:
  struct Operation {
    int32_t peer = 0;
    uint64_t tag = 0;
    size_t bytes = 0;
    bool receive = false;
  };

  // All following functions need the lock.

  int64_t Post(const Operation& operation, void* data);
  // Waits until `until` for a completed operation, and handles it. Returns false if none has completed.
  bool Hear(Transport::Clock::time_point until);
  // Returns true if messages can be sent. Otherwise the communicator has failed; `doing` describes the current call.
  bool Usable(const std::string& doing);
  // Returns true if the communicator has failed, also because the world has ended.
  bool Over(const std::string& doing);
  void Fail(const std::string& doing, const std::string& error, const WorldEnd::Explain& explain);
  // Memory of operations is not accessed after this call.
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
  std::unique_ptr<Transport> transport_;              // null after a failure
  std::unique_ptr<::paceline::core::Worker> poster_;  // sends and receives by the transport; null with it
  uint64_t made_ = 0;                                 // number of operations, as counted by the transport
  std::map<uint64_t, Operation> in_flight_;
  std::string why_;
  bool shut_down_ = false;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_STAGES_STAGE_COMMUNICATOR_H
