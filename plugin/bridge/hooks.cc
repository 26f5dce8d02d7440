#include "bridge/hooks.h"

#include "bridge/ready.h"
#include "bridge/runtime.h"
#include "horovod/common/operations.h"

namespace horovod {
namespace paceline {

namespace {

using ::paceline::core::CollectiveKind;

CollectiveKind KindOf(common::Response::ResponseType type) {
  switch (type) {
    case common::Response::ALLREDUCE:
      return CollectiveKind::kAllreduce;
    case common::Response::ALLGATHER:
      return CollectiveKind::kAllgather;
    case common::Response::BROADCAST:
      return CollectiveKind::kBroadcast;
    case common::Response::ALLTOALL:
      return CollectiveKind::kAlltoall;
    case common::Response::REDUCESCATTER:
      return CollectiveKind::kReducescatter;
    case common::Response::ADASUM:
      return CollectiveKind::kAdasum;
    case common::Response::JOIN:
      return CollectiveKind::kJoin;
    case common::Response::BARRIER:
      return CollectiveKind::kBarrier;
    default:
      return CollectiveKind::kError;
  }
}

// Tells those that watch when tensors are handed in.
void Arrived(const std::vector<std::shared_ptr<common::Tensor>>& tensors, const std::vector<std::string>& names,
             int32_t process_set_id) {
  auto& runtime = GetRuntime();
  const auto merger = runtime.mergers.Watching(process_set_id);
  const bool recording = runtime.recorder.recording();
  if (!recording && merger == nullptr) {
    return;
  }
  const auto now_ns = Nanoseconds(Clock::now());
  for (size_t n = 0; n < tensors.size(); ++n) {
    if (recording) {
      runtime.recorder.Arrived({names[n], static_cast<int64_t>(tensors[n]->size()),
                                static_cast<int32_t>(tensors[n]->dtype()), process_set_id},
                               now_ns);
    }
    if (merger != nullptr) {
      merger->Arrived(names[n], now_ns);
    }
  }
}

common::Status NotIncluded(const std::string& what) {
  return common::Status::InvalidArgument(what + ": rank " + std::to_string(common::horovod_rank()) +
                                         " is not a member of the process set. Leave the call out on this rank, or "
                                         "give it a process set that this rank is in.");
}

common::Status OnGpu(const std::string& what, int device) {
  return common::Status::InvalidArgument(what + ": expected a tensor in host memory, found one on GPU " +
                                         std::to_string(device) +
                                         ". Use exchange=\"sync\", or a Horovod that was "
                                         "built without HOROVOD_GPU_OPERATIONS, which copies it to host memory.");
}

// Every tensor by itself, as below: what is merged is up to Horovod and to plans.
common::Status Partial(common::ProcessSet& process_set, const std::vector<std::shared_ptr<common::Tensor>>& tensors,
                       const std::vector<std::shared_ptr<common::Tensor>>& outputs,
                       const std::vector<common::ReadyEventList>& ready, const std::vector<PartialMark>& marks,
                       int device, std::vector<common::StatusCallback>& callbacks, Reducing reducing) {
  auto& runtime = GetRuntime();
  if (reducing.op == common::ReduceOp::AVERAGE) {  // by the number of all ranks, whoever contributes
    reducing.op = common::ReduceOp::SUM;
    reducing.postscale /= process_set.controller->GetSize();
  }
  for (size_t n = 0; n < tensors.size(); ++n) {
    const auto& mark = marks[n];
    const auto what = "Partial allreduce of " + mark.unmarked;
    auto status = common::Status::OK();
    if (!process_set.IsCurrentProcessIncluded()) {
      status = NotIncluded(what);
    } else if (device != CPU_DEVICE_ID) {
      status = OnGpu(what, device);
    } else {
      status = WaitReady(ready[n], what);
    }
    if (status.ok()) {
      status = runtime.partials.Call(process_set, mark, reducing, tensors[n], outputs[n], callbacks[n]);
    }
    if (!status.ok() && n == 0) {
      return status;
    }
    if (!status.ok()) {
      callbacks[n](status);
    }
  }
  return common::Status::OK();
}

// Every tensor by itself: what Horovod's groups are for, going together, is the merging plan's business here.
common::Status Pipelined(const common::ProcessSet& process_set,
                         const std::vector<std::shared_ptr<common::Tensor>>& tensors,
                         const std::vector<std::shared_ptr<common::Tensor>>& outputs,
                         const std::vector<common::ReadyEventList>& ready, const std::vector<std::string>& names,
                         int device, std::vector<common::StatusCallback>& callbacks, const Reducing& reducing) {
  for (size_t n = 0; n < tensors.size(); ++n) {
    const auto mark = MarkOf(names[n]);
    const auto what = "Pipelined exchange of " + mark.unmarked;
    if (!process_set.IsCurrentProcessIncluded()) {
      return NotIncluded(what);
    }
    if (device != CPU_DEVICE_ID) {
      return OnGpu(what, device);
    }
    auto accepted = WaitReady(ready[n], what);
    if (accepted.ok()) {
      const auto channel = GetRuntime().channels.Of(names[n], mark, reducing.process_set_id);
      accepted = channel->Call(reducing, tensors[n], outputs[n], callbacks[n]);
    }
    if (!accepted.ok() && n == 0) {
      return accepted;
    }
    if (!accepted.ok()) {
      callbacks[n](accepted);
    }
  }
  return common::Status::OK();
}

}  // namespace

bool Enqueue(common::ProcessSet& process_set, std::vector<std::shared_ptr<common::OpContext>>&,
             std::vector<std::shared_ptr<common::Tensor>>& tensors,
             std::vector<std::shared_ptr<common::Tensor>>& outputs,
             std::vector<common::ReadyEventList>& ready_event_lists, std::vector<std::string>& names, int device,
             std::vector<common::StatusCallback>& callbacks, common::ReduceOp reduce_op, double prescale_factor,
             double postscale_factor, int32_t process_set_id, common::Status& status) {
  if (MarkOf(names[0]).k > 1) {
    status = Pipelined(process_set, tensors, outputs, ready_event_lists, names, device, callbacks,
                       {reduce_op, prescale_factor, postscale_factor, process_set_id});
    return true;
  }
  auto& runtime = GetRuntime();
  if (PartialMarkOf(names[0]).partial) {
    std::vector<PartialMark> marks;
    std::vector<std::string> unmarked;
    for (const auto& name : names) {
      marks.push_back(PartialMarkOf(name));
      unmarked.push_back(marks.back().unmarked);
    }
    Arrived(tensors, unmarked, process_set_id);
    status = Partial(process_set, tensors, outputs, ready_event_lists, marks, device, callbacks,
                     {reduce_op, prescale_factor, postscale_factor, process_set_id});
    return true;
  }
  for (const auto& name : names) {
    if (runtime.partials.Find(name, process_set_id) != nullptr) {
      status = common::Status::InvalidArgument("Allreduce of " + name +
                                               ": the calls of this name before were partial. Give it another name.");
      return true;
    }
  }
  Arrived(tensors, names, process_set_id);
  return false;
}

void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  GetRuntime().partials.Popped(process_set, messages);
  GetRuntime().mergers.current().Popped(process_set, messages);
}

bool Ready(const common::Request& request, int count, int, bool ready) {
  if (IsCall(request.tensor_name())) {
    return count == 1;
  }
  return !GetRuntime().partials.Counts(request) && ready;
}

bool Noted(const common::Request& request) { return GetRuntime().partials.Noted(request); }

std::vector<std::string> Counted() {
  auto& runtime = GetRuntime();
  return runtime.partials.Counted([&](const auto& name) { return runtime.mergers.current().Group(name); });
}

bool Counting(const std::string& name) { return GetRuntime().partials.Counting(name); }

void Fuse(common::Controller& controller, std::deque<common::Response>& responses,
          common::ResponseList& response_list) {
  auto& runtime = GetRuntime();
  const auto group = [&](const auto& name) { return runtime.mergers.current().Group(name); };
  runtime.partials.Fuse(controller, responses, response_list, group);
  runtime.mergers.current().Fuse(controller, responses, response_list);
}

bool Cacheable(const common::Response& response) {
  return response.tensor_names().empty() ||
         !(IsCall(response.tensor_names()[0]) || GetRuntime().partials.Has(response));
}

void Entries(const common::Response& response, common::ProcessSet& process_set) {
  GetRuntime().partials.Entries(response, process_set);
  GetRuntime().mergers.current().Entries(response, process_set);
}

int64_t BufferBytes(int64_t own_bytes, const common::Response& response,
                    const std::vector<common::TensorTableEntry>& entries, common::ProcessSet& process_set, int stream) {
  return GetRuntime().fusion_buffers.Bytes(own_bytes, response, entries, *process_set.controller, stream);
}

void Performed(common::ProcessSet& process_set, const common::Response& response,
               const std::vector<common::TensorTableEntry>& entries, const common::Status& status,
               Clock::time_point start) {
  auto& runtime = GetRuntime();
  const auto type = response.response_type();
  const auto start_ns = Nanoseconds(start);
  const auto end_ns = Nanoseconds(Clock::now());
  runtime.partials.Performed(response, process_set);
  runtime.mergers.current().Performed(process_set, response, entries, status, start_ns, end_ns);
  if (type == common::Response::JOIN) {
    runtime.automatic_names.Meet(runtime.process_set_id);
  }
  if (!response.tensor_names().empty() && IsCall(response.tensor_names()[0])) {
    return;  // calls are not the user's messages
  }
  int64_t bytes = 0;
  if (type != common::Response::JOIN && type != common::Response::BARRIER) {
    for (const auto& entry : entries) {
      bytes += entry.tensor != nullptr ? static_cast<int64_t>(entry.tensor->size()) : 0;
    }
  }
  runtime.recorder.Performed(KindOf(type), response.tensor_names(), bytes, start_ns, end_ns);
}

void Operations(common::HorovodGlobalState&, std::vector<std::shared_ptr<common::AllreduceOp>>&,
                std::vector<std::shared_ptr<common::BroadcastOp>>&) {}

void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) {
  GetRuntime().process_set_id = process_set_id;
  if (process_set.IsCurrentProcessIncluded()) {
    auto& runtime = GetRuntime();
    runtime.recorder.Coordinated();
    runtime.partials.Cycle(process_set_id, process_set, state.timeline);
    runtime.mergers.Cycle(state, process_set, process_set_id);
  }
}

}  // namespace paceline
}  // namespace horovod
