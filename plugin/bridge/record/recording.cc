#include "bridge/record/recording.h"

#include "bridge/participants.h"
#include "bridge/reserved_names.h"

namespace horovod::paceline {

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

CollectiveKind KindOf(common::Request::RequestType type) {
  switch (type) {
    case common::Request::ALLREDUCE:
      return CollectiveKind::kAllreduce;
    case common::Request::ALLGATHER:
      return CollectiveKind::kAllgather;
    case common::Request::BROADCAST:
      return CollectiveKind::kBroadcast;
    case common::Request::ALLTOALL:
      return CollectiveKind::kAlltoall;
    case common::Request::REDUCESCATTER:
      return CollectiveKind::kReducescatter;
    case common::Request::ADASUM:
      return CollectiveKind::kAdasum;
    case common::Request::JOIN:
      return CollectiveKind::kJoin;
    default:
      return CollectiveKind::kBarrier;
  }
}

bool OfUser(const std::string& name) { return !Begins(name, kControlNames) && !Begins(name, kNoteNames); }

}  // namespace

void Recording::BeginWorld() {
  log_.Clear();
  const std::lock_guard<std::mutex> lock(mutex_);
  process_sets_.clear();
}

void Recording::EndProcessSet(int32_t process_set_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  process_sets_.erase(process_set_id);
}

std::map<int32_t, std::vector<int>> Recording::ProcessSets() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return process_sets_;
}

::paceline::core::Need Recording::Queued(const common::Request& request, int32_t process_set_id) {
  // Ranks join at different times: nobody waits for it.
  if (log_.keeping() && process_set_id >= 0 && request.request_type() != common::Request::JOIN &&
      OfUser(request.tensor_name())) {
    log_.Submitted({request.tensor_name(), KindOf(request.request_type()), static_cast<int32_t>(request.tensor_type()),
                    process_set_id, request.tensor_shape()},
                   Nanoseconds(Clock::now()));
  }
  return Participant::Queued(request, process_set_id);
}

void Recording::Arrived(const std::vector<std::shared_ptr<common::Tensor>>& tensors,
                        const std::vector<std::string>& names, int32_t process_set_id) {
  if (!recorder_.recording()) {
    return;
  }
  const auto now_ns = Nanoseconds(Clock::now());
  for (size_t n = 0; n < tensors.size(); ++n) {
    recorder_.Arrived(
        {names[n], static_cast<int64_t>(tensors[n]->size()), static_cast<int32_t>(tensors[n]->dtype()), process_set_id},
        now_ns);
  }
}

void Recording::Cycle(common::HorovodGlobalState& /*state*/, common::ProcessSet& process_set, int32_t process_set_id) {
  recorder_.Coordinated();
  process_set_id_ = process_set_id;
  if (log_.keeping()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    process_sets_.try_emplace(process_set_id, process_set.registered_global_ranks);
  }
}

void Recording::BeforeExecute(common::ProcessSet& /*process_set*/, const common::Response& response) {
  if (!log_.keeping()) {
    return;
  }
  const auto now_ns = Nanoseconds(Clock::now());
  for (const auto& name : response.tensor_names()) {
    log_.Started(process_set_id_, name, now_ns);
  }
}

void Recording::Performed(const Executed& executed) {
  const auto& names = executed.response.tensor_names();
  if (!names.empty() && Begins(names[0], kControlNames)) {
    return;  // not the user's message
  }
  const auto type = executed.response.response_type();
  int64_t bytes = 0;
  if (type != common::Response::JOIN && type != common::Response::BARRIER) {
    for (const auto& entry : executed.entries) {
      bytes += entry.tensor != nullptr ? static_cast<int64_t>(entry.tensor->size()) : 0;
    }
  }
  recorder_.Performed(KindOf(type), names, bytes, executed.start_ns, executed.end_ns);
  if (log_.keeping() && (executed.status.ok() || executed.status.in_progress())) {
    for (const auto& entry : executed.entries) {
      log_.Completed(entry.process_set_id, entry.tensor_name, executed.end_ns);
    }
  }
}

}  // namespace horovod::paceline
