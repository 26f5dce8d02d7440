// The one interface between Horovod's source and Paceline: what each hook point calls.
//
// plugin/horovod/hooks.py lists where in Horovod's files these calls are inserted. Each asks the participants in turn;
// participant.h says what a hook means and which thread calls it.

#ifndef PACELINE_BRIDGE_HOOKS_H
#define PACELINE_BRIDGE_HOOKS_H

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bridge/participant.h"
#include "bridge/process_sets_change.h"
#include "bridge/waking.h"

namespace horovod::paceline {

// enqueue: an allreduce call of any framework, before entries are made. True: `status` is its answer. All vectors have
// one element per tensor.
bool Enqueue(common::ProcessSet& process_set, std::vector<std::shared_ptr<common::OpContext>>& contexts,
             std::vector<std::shared_ptr<common::Tensor>>& tensors,
             std::vector<std::shared_ptr<common::Tensor>>& outputs,
             std::vector<common::ReadyEventList>& ready_event_lists, std::vector<std::string>& names, int device,
             std::vector<common::StatusCallback>& callbacks, common::ReduceOp reduce_op, double prescale_factor,
             double postscale_factor, int32_t process_set_id, common::Status& status);

// all_connected: may throw.
void AllConnected(common::HorovodGlobalState& state);

// popped
void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages);

// queued
void Queued(const common::Request& request, int32_t process_set_id);

// submitted: TensorQueue::Submitted(), names of this rank's operations that were submitted and have not begun.

// take_control_request
bool TakeControlRequest(const common::Request& request);

// override_ready
bool OverrideReady(const common::Request& request, int count, bool ready);

// extra_ready_names: those that participants add.
std::vector<std::string> ExtraReadyNames();

// owns_readiness
bool OwnsReadiness(const std::string& name);

// fuse
void Fuse(common::Controller& controller, std::deque<common::Response>& responses, common::ResponseList& response_list);

// cache
bool Cacheable(const common::Response& response);

// before_execute
void BeforeExecute(const common::Response& response, common::ProcessSet& process_set);

// operations
void AddOperations(common::HorovodGlobalState& state, std::vector<std::shared_ptr<common::AllreduceOp>>& allreduces,
                   std::vector<std::shared_ptr<common::BroadcastOp>>& broadcasts);

// waking: NotifyWorkSubmitted() and NotifyWaitedFor() of waking.h.

// sleep: true: the cycle is to begin, and Horovod does not sleep.
bool Sleep(common::HorovodGlobalState& state);

// bits, texts: true: Horovod's own way is not to be gone.
bool CombineBits(::paceline::core::BitOperation operation, std::vector<long long>& words, int count);
bool GatherInts(const std::array<int, 2>& values, std::vector<int>& all);
bool SendRequests(const common::RequestList& requests);
bool GatherRequests(std::vector<common::RequestList>& by_rank);
bool SendResponses(const common::ResponseList& responses);
bool ReceiveResponses(common::ResponseList& responses);

// registered_sets: two numbers of each rank, by rank. May throw.
void RegisteredSets(const std::vector<int>& all);

// end
void End();

// on_completion: gloo::transport::UnboundBuffer calls its `on_completion`; transport/gloo_transport.h sets it.

// buffer: the size where Horovod's own choice is `own_bytes`.
int64_t BufferBytes(int64_t own_bytes, const common::Response& response,
                    const std::vector<common::TensorTableEntry>& entries, common::ProcessSet& process_set, int stream);

// after_execute
void AfterExecute(common::ProcessSet& process_set, const common::Response& response,
                  const std::vector<common::TensorTableEntry>& entries, const common::Status& status,
                  Clock::time_point start);

// round_performed
void RoundPerformed(common::ProcessSet& process_set);

// cycle
void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_HOOKS_H
