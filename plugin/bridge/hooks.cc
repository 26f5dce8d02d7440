#include "bridge/hooks.h"

#include <algorithm>

#include "bridge/cpu_tensor.h"
#include "bridge/half.h"
#include "bridge/participants.h"
#include "bridge/reserved_names.h"
#include "horovod/common/operations.h"

namespace horovod::paceline {

namespace {

common::Status Reserved(const std::string& name) {
  return common::Status::InvalidArgument(
      "Allreduce of " + name + ": rank " + std::to_string(common::horovod_rank()) +
      " expected a name that a user may give, found one that begins with the control character DEL and 'paceline.', "
      "which are Paceline's own. Give it another name.");
}

}  // namespace

bool Enqueue(common::ProcessSet& process_set, std::vector<std::shared_ptr<common::OpContext>>& contexts,
             std::vector<std::shared_ptr<common::Tensor>>& tensors,
             std::vector<std::shared_ptr<common::Tensor>>& outputs,
             std::vector<common::ReadyEventList>& ready_event_lists, std::vector<std::string>& names, int device,
             std::vector<common::StatusCallback>& callbacks, common::ReduceOp reduce_op, double prescale_factor,
             double postscale_factor, int32_t process_set_id, common::Status& status) {
  // What we hand in ourselves means what it says.
  if (contexts[0] != CpuContext()) {
    for (const auto& name : names) {
      if (Begins(name, kReserved) && !Begins(name, kReduceNames) && HalfOf(name) == Half::kBoth) {
        status = Reserved(name);
        return true;
      }
    }
    AllreduceCall call{process_set, tensors, outputs,   ready_event_lists,
                       names,       device,  callbacks, {reduce_op, prescale_factor, postscale_factor, process_set_id}};
    for (auto* participant : Participants()) {
      if (participant->Enqueue(call, status)) {
        return true;
      }
    }
  }
  NotifyArrived(tensors, names, process_set_id);
  return false;
}

void NotifyWorkSubmitted() {
  for (auto* participant : Participants()) {
    participant->WorkSubmitted();
  }
}

void NotifyWaitedFor() {
  for (auto* participant : Participants()) {
    participant->WaitedFor();
  }
}

bool Sleep(common::HorovodGlobalState& state) {
  const auto& all = Participants();
  return std::any_of(all.begin(), all.end(), [&](auto* one) { return one->Sleep(state); });
}

bool CombineBits(::paceline::core::BitOperation operation, std::vector<long long>& words, int count) {
  const auto& all = Participants();
  return std::any_of(all.begin(), all.end(),
                     [&](auto* one) { return one->CombineBits(operation, words.data(), count); });
}

bool GatherInts(const std::array<int, 2>& values, std::vector<int>& all_values) {
  const auto& all = Participants();
  return std::any_of(all.begin(), all.end(), [&](auto* one) { return one->GatherInts(values, all_values); });
}

void RegisteredSets(const std::vector<int>& all_values) {
  for (auto* participant : Participants()) {
    participant->RegisteredSets(all_values);
  }
}

bool SendRequests(const common::RequestList& requests) {
  const auto& all = Participants();
  return std::any_of(all.begin(), all.end(), [&](auto* one) { return one->SendRequests(requests); });
}

bool GatherRequests(std::vector<common::RequestList>& by_rank) {
  const auto& all = Participants();
  return std::any_of(all.begin(), all.end(), [&](auto* one) { return one->GatherRequests(by_rank); });
}

bool SendResponses(const common::ResponseList& responses) {
  const auto& all = Participants();
  return std::any_of(all.begin(), all.end(), [&](auto* one) { return one->SendResponses(responses); });
}

bool ReceiveResponses(common::ResponseList& responses) {
  const auto& all = Participants();
  return std::any_of(all.begin(), all.end(), [&](auto* one) { return one->ReceiveResponses(responses); });
}

void AllConnected(common::HorovodGlobalState& state) {
  for (auto* participant : Participants()) {
    participant->AllConnected(state);
  }
}

void End() {
  for (auto* participant : Participants()) {
    participant->End();
  }
}

void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  for (auto* participant : Participants()) {
    participant->Popped(process_set, messages);
  }
}

void Queued(const common::Request& request, int32_t process_set_id) {
  using ::paceline::core::Need;
  auto need = Need::kRound;
  for (auto* participant : Participants()) {
    need = std::max(need, participant->Queued(request, process_set_id));
  }
  if (need == Need::kRound) {
    NotifyWorkSubmitted();
  } else if (need == Need::kOthers) {
    for (auto* participant : Participants()) {
      participant->Held();
    }
  }
}

bool TakeControlRequest(const common::Request& request) {
  const auto& all = Participants();
  return std::any_of(all.begin(), all.end(), [&](auto* one) { return one->TakeControlRequest(request); });
}

bool OverrideReady(const common::Request& request, int count, bool ready) {
  for (auto* participant : Participants()) {
    ready = participant->OverrideReady(request, count, ready);
  }
  return ready;
}

std::vector<std::string> ExtraReadyNames() {
  std::vector<std::string> names;
  for (auto* participant : Participants()) {
    participant->AddReadyNames(names);
  }
  return names;
}

bool OwnsReadiness(const std::string& name) {
  const auto& all = Participants();
  return std::any_of(all.begin(), all.end(), [&](auto* one) { return one->OwnsReadiness(name); });
}

void Fuse(common::Controller& controller, std::deque<common::Response>& responses,
          common::ResponseList& response_list) {
  for (auto* participant : Participants()) {
    participant->Fuse(controller, responses, response_list);
  }
}

bool Cacheable(const common::Response& response) {
  const auto& all = Participants();
  return std::all_of(all.begin(), all.end(), [&](auto* one) { return one->Cacheable(response); });
}

void BeforeExecute(const common::Response& response, common::ProcessSet& process_set) {
  for (auto* participant : Participants()) {
    participant->BeforeExecute(process_set, response);
  }
}

void AddOperations(common::HorovodGlobalState& state, std::vector<std::shared_ptr<common::AllreduceOp>>& allreduces,
                   std::vector<std::shared_ptr<common::BroadcastOp>>& broadcasts) {
  for (auto* participant : Participants()) {
    participant->AddOperations(state, allreduces, broadcasts);
  }
}

int64_t BufferBytes(int64_t own_bytes, const common::Response& response,
                    const std::vector<common::TensorTableEntry>& entries, common::ProcessSet& process_set, int stream) {
  for (auto* participant : Participants()) {
    own_bytes = participant->BufferBytes(own_bytes, {response, entries, *process_set.controller, stream});
  }
  return own_bytes;
}

void AfterExecute(common::ProcessSet& process_set, const common::Response& response,
                  const std::vector<common::TensorTableEntry>& entries, const common::Status& status,
                  Clock::time_point start) {
  const Executed executed{process_set, response, entries, status, Nanoseconds(start), Nanoseconds(Clock::now())};
  for (auto* participant : Participants()) {
    participant->AfterExecute(executed);
  }
  // Operations that go on with their tensors take them (collectives/message.h).
  if (!status.in_progress() || !entries.empty()) {
    NotifyPerformed(executed);
  }
}

void RoundPerformed(common::ProcessSet& process_set) {
  const auto& all = Participants();
  std::for_each(all.begin(), all.end(), [&](auto* one) { one->RoundBegun(process_set); });
  std::for_each(all.rbegin(), all.rend(), [&](auto* one) { one->RoundPerformed(process_set); });
}

void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) {
  if (!process_set.IsCurrentProcessIncluded()) {
    return;
  }
  for (auto* participant : Participants()) {
    participant->Cycle(state, process_set, process_set_id);
  }
}

}  // namespace horovod::paceline
