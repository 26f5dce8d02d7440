// The one interface between Horovod's source and Paceline: what each hook point calls.
//
// plugin/host/hooks.py lists where in Horovod's files these calls are inserted. All but Enqueue run in Horovod's
// background thread; Enqueue runs in whichever thread hands in tensors. A hook that has nothing to do returns at once.

#ifndef PACELINE_BRIDGE_HOOKS_H
#define PACELINE_BRIDGE_HOOKS_H

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "horovod/common/common.h"
#include "horovod/common/global_state.h"
#include "horovod/common/message.h"
#include "horovod/common/ops/collective_operations.h"
#include "horovod/common/process_set.h"

namespace horovod {
namespace paceline {

using Clock = std::chrono::steady_clock;

inline int64_t Nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// enqueue: an allreduce call of any framework, before entries are made. True: Paceline has taken the call over and
// `status` is its answer. All vectors have one element per tensor. A tensor may be read when its events have happened;
// calls that are taken over wait for that here.
bool Enqueue(common::ProcessSet& process_set, std::vector<std::shared_ptr<common::OpContext>>& contexts,
             std::vector<std::shared_ptr<common::Tensor>>& tensors,
             std::vector<std::shared_ptr<common::Tensor>>& outputs,
             std::vector<common::ReadyEventList>& ready_event_lists, std::vector<std::string>& names, int device,
             std::vector<common::StatusCallback>& callbacks, common::ReduceOp reduce_op, double prescale_factor,
             double postscale_factor, int32_t process_set_id, common::Status& status);

// popped: this cycle's messages, just taken from the queue; messages removed here are not offered in this cycle.
void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages);

// handed: TensorQueue::Handed(), the names of all operations of this rank that have been handed in and not begun.

// ready: on the coordinator, after a request was counted. `needed` ranks make it ready by Horovod's own rule, whose
// verdict is `ready`; returns the verdict to act on.
bool Ready(const common::Request& request, int count, int needed, bool ready);

// noted: on the coordinator, before a request is counted. True: it was a message to Paceline and is no request.
bool Noted(const common::Request& request);

// counted: on the coordinator, after all requests of this round were counted; names that are ready by Paceline's rules.
std::vector<std::string> Counted();
// And where ranks have joined, before Horovod compares its counts with fewer ranks: whether this name is one of those.
bool Counting(const std::string& name);

// fuse: responses that are about to be merged; those moved to `response_list` here are left out of Horovod's merging.
void Fuse(common::Controller& controller, std::deque<common::Response>& responses, common::ResponseList& response_list);

// cache: whether this response may enter the response cache. Must give the same answer on every rank.
bool Cacheable(const common::Response& response);

// entries: a response is about to look up its tensors' entries; entries that are missing here may be made now.
void Entries(const common::Response& response, common::ProcessSet& process_set);

// buffer: the size of the buffer through which a message of several tensors goes, where Horovod's own choice is
// `own_bytes`; that where no message was larger.
int64_t BufferBytes(int64_t own_bytes, const common::Response& response,
                    const std::vector<common::TensorTableEntry>& entries, common::ProcessSet& process_set, int stream);

// performed: after the collective was executed (for GPU operations: queued) and before its callbacks.
void Performed(common::ProcessSet& process_set, const common::Response& response,
               const std::vector<common::TensorTableEntry>& entries, const common::Status& status,
               Clock::time_point start);

// operations: our collectives go in front of Horovod's, which are tried in order.
void Operations(common::HorovodGlobalState& state, std::vector<std::shared_ptr<common::AllreduceOp>>& allreduce_ops,
                std::vector<std::shared_ptr<common::BroadcastOp>>& broadcast_ops);

// cycle: a coordination round of this process set is about to begin. All hooks until the next call of this one are
// about this process set.
void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id);

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_HOOKS_H
