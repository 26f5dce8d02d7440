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

}  // namespace

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

void Recording::Cycle(common::HorovodGlobalState& /*state*/, common::ProcessSet& /*process_set*/,
                      int32_t /*process_set_id*/) {
  recorder_.Coordinated();
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
}

}  // namespace horovod::paceline
