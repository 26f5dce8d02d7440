// The seam between Horovod and what is ours: what takes part in Horovod's work, and when it is asked.
//
// A kind of work of ours is a folder beside this file, one line in participants.cc and one in priorities.h. hooks.h
// says where in Horovod's source each hook is; it asks the participants by priority. None of them names another: what
// one needs of another it is given in participants.cc, as an interface from this folder.

#ifndef PACELINE_BRIDGE_PARTICIPANT_H
#define PACELINE_BRIDGE_PARTICIPANT_H

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bridge/reducing.h"
#include "core/coordination/need.h"
#include "core/coordination/round_message.h"
#include "horovod/common/common.h"
#include "horovod/common/controller.h"
#include "horovod/common/global_state.h"
#include "horovod/common/message.h"
#include "horovod/common/ops/collective_operations.h"
#include "horovod/common/process_set.h"

namespace horovod::paceline {

using Clock = std::chrono::steady_clock;

inline int64_t Nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// One allreduce call of a framework. All vectors have one element per tensor, and at least one. A tensor may be read
// when its events have happened.
struct AllreduceCall {
  common::ProcessSet& process_set;
  const std::vector<std::shared_ptr<common::Tensor>>&tensors, &outputs;
  const std::vector<common::ReadyEventList>& ready;
  const std::vector<std::string>& names;
  int device;
  std::vector<common::StatusCallback>& callbacks;
  Reducing reducing;
};

// One message that was performed (for GPU operations: queued). Times are those of Clock.
struct Executed {
  common::ProcessSet& process_set;
  const common::Response& response;
  const std::vector<common::TensorTableEntry>& entries;
  const common::Status& status;
  int64_t start_ns, end_ns;
  // A message of an armed step, for which BeforeExecute was not called: they end in one order on all ranks.
  bool armed = false;
};

// Where fusion buffers are kept, and for what.
struct MessageInBuffer {
  const common::Response& response;
  const std::vector<common::TensorTableEntry>& entries;
  common::Controller& controller;
  int stream;  // what Horovod tells buffers of one device and framework apart by
};

// A hook that a participant leaves out does nothing. One that has nothing to do returns at once: `make idle`.
class Participant {
 public:
  Participant() = default;
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;
  Participant(Participant&&) = delete;
  Participant& operator=(Participant&&) = delete;
  virtual ~Participant() = default;

  // --- Any thread of a framework, also several at once.

  // init(), before the background thread of a new world starts: whatever was begun in the one before has ended.
  virtual void BeginWorld() {}

  // A process set, not that of all ranks, has ended on all ranks: in the background thread between two cycles, or when
  // there is none any more. The next one with this id begins with nothing. Horovod's lock of its table of process sets
  // is held.
  virtual void EndProcessSet(int32_t /*process_set_id*/) {}

  // A call, before Horovod makes entries of it. True: it is taken over, and `status` is the answer to it; those behind
  // are not asked. Where all say false, Arrived follows and Horovod goes on.
  virtual bool Enqueue(AllreduceCall& /*call*/, common::Status& /*status*/) { return false; }

  // Tensors were submitted that will be sent under these names; also those of calls that were taken over.
  virtual void Arrived(const std::vector<std::shared_ptr<common::Tensor>>& /*tensors*/,
                       const std::vector<std::string>& /*names*/, int32_t /*process_set_id*/) {}

  // Something is there that the next coordination round is to take up: a request, or a change of process sets. Locks of
  // Horovod's may be held.
  virtual void WorkSubmitted() {}

  // This thread waits for operations that were handed in; the background thread is to end.
  virtual void WaitedFor() {}

  // An operation was put into the queue of requests of a process set, whose lock is held. The least that somebody says
  // it needs counts: WorkSubmitted follows where that is a round, Held where it is others. The process set is -1 for
  // messages without an operation of this rank.
  virtual ::paceline::core::Need Queued(const common::Request& /*request*/, int32_t /*process_set_id*/) {
    return ::paceline::core::Need::kRound;
  }

  // Something was queued that goes with others which are still to come.
  virtual void Held() {}

  // --- Horovod's background thread alone.

  // All ranks of a new world have connected; no coordination round has begun. Throws if this world cannot be, which
  // fails init().
  virtual void AllConnected(common::HorovodGlobalState& /*state*/) {}

  // Once in a cycle, before anything else: returns when the cycle is to begin. False: it has not waited.
  virtual bool Sleep(common::HorovodGlobalState& /*state*/) { return false; }

  // How long the background thread may sleep though something here waits for time to pass, which is looked at in
  // rounds.
  virtual Clock::duration SleepLimit() { return Clock::duration::max(); }

  // All that was handed in so far went without a coordination round. What comes meanwhile is handed in again.
  virtual void TakenUp() {}

  // What ranks of the process set of this coordination round tell each other; all of them call it, in one order. False:
  // nothing was told, and Horovod's own way is to be gone. Words become the and, or the or, of those of all ranks.
  virtual bool CombineBits(::paceline::core::BitOperation /*operation*/, long long* /*words*/, int /*count*/) {
    return false;
  }
  // Requests go to the first rank, in place of its own there is nothing; its responses to all others.
  virtual bool SendRequests(const common::RequestList& /*requests*/) { return false; }
  virtual bool GatherRequests(std::vector<common::RequestList>& /*by_rank*/) { return false; }
  virtual bool SendResponses(const common::ResponseList& /*responses*/) { return false; }
  virtual bool ReceiveResponses(common::ResponseList& /*responses*/) { return false; }

  // The same among all ranks of the world, before the first coordination round of a cycle: two numbers of each rank, by
  // rank.
  virtual bool GatherInts(const std::array<int, 2>& /*values*/, std::vector<int>& /*all*/) { return false; }

  // What ranks told each other by GatherInts or by Horovod's own way, where process sets may change: how many process
  // sets each has registered, and the one that it removes (negative: none). Throws if this world cannot go on.
  virtual void RegisteredSets(const std::vector<int>& /*all*/) {}

  // No further cycle comes in this world; connections are still there, unless it has failed.
  virtual void End() {}

  // Once in a world, before its first cycle: Horovod asks operations in this order which of them does a message.
  virtual void AddOperations(common::HorovodGlobalState& /*state*/,
                             std::vector<std::shared_ptr<common::AllreduceOp>>& /*allreduces*/,
                             std::vector<std::shared_ptr<common::BroadcastOp>>& /*broadcasts*/) {}

  // A coordination round of this process set, which this rank is in, is about to begin. All that follows, up to the
  // next call, is about this set. It may have been another one that had this id before.
  virtual void Cycle(common::HorovodGlobalState& /*state*/, common::ProcessSet& /*process_set*/,
                     int32_t /*process_set_id*/) {}

  // This cycle's messages, just taken from the queue. Those that are removed are not offered in this cycle.
  virtual void Popped(common::ProcessSet& /*process_set*/, std::deque<common::Request>& /*messages*/) {}

  // On the coordinator, before a request is counted. True: it was a message to this participant and is no request.
  virtual bool TakeControlRequest(const common::Request& /*request*/) { return false; }

  // On the coordinator, after a request was counted, `count` of its name so far. The verdict to go on with; `ready` is
  // Horovod's own, or that of those before.
  virtual bool OverrideReady(const common::Request& /*request*/, int /*count*/, bool ready) { return ready; }

  // On the coordinator, after all requests of this round were counted: adds names that are ready by other rules.
  virtual void AddReadyNames(std::vector<std::string>& /*names*/) {}

  // On the coordinator where ranks have joined, before Horovod compares its counts with fewer ranks: whether this name
  // is ready by other rules only.
  virtual bool OwnsReadiness(const std::string& /*name*/) { return false; }

  // Responses of one tensor each, about to be merged by Horovod. Those that are moved to `list` are left out of that.
  virtual void Fuse(common::Controller& /*controller*/, std::deque<common::Response>& /*responses*/,
                    common::ResponseList& /*list*/) {}

  // Whether a response may enter the response cache. The same on every rank.
  virtual bool Cacheable(const common::Response& /*response*/) { return true; }

  // A response is about to look up its tensors' entries. Those that lack may be made now.
  virtual void BeforeExecute(common::ProcessSet& /*process_set*/, const common::Response& /*response*/) {}

  // The size of the buffer of a message of several tensors; `bytes` is Horovod's choice, or that of those before.
  virtual int64_t BufferBytes(int64_t bytes, const MessageInBuffer& /*message*/) { return bytes; }

  // A message was performed, or begun by an operation that will tell of it (Performed). Follows BeforeExecute.
  virtual void AfterExecute(const Executed& /*executed*/) {}

  // Results of a message are there; its callbacks come next. Others may have been begun since it was.
  virtual void Performed(const Executed& /*executed*/) {}

  // All messages of this coordination round have been performed or begun; those of ours may be under way.
  virtual void RoundBegun(common::ProcessSet& /*process_set*/) {}

  // The same, behind that. The last participant is asked first, so that collectives of ours have ended before others go
  // on.
  virtual void RoundPerformed(common::ProcessSet& /*process_set*/) {}
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PARTICIPANT_H
