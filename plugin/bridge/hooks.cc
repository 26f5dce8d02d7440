#include "bridge/hooks.h"

#include "bridge/runtime.h"

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

}  // namespace

bool Enqueue(common::ProcessSet&, std::vector<std::shared_ptr<common::OpContext>>&,
             std::vector<std::shared_ptr<common::Tensor>>& tensors, std::vector<std::shared_ptr<common::Tensor>>&,
             std::vector<common::ReadyEventList>&, std::vector<std::string>& names, int,
             std::vector<common::StatusCallback>&, common::ReduceOp, double, double, int32_t process_set_id,
             common::Status&) {
  auto& recorder = GetRuntime().recorder;
  if (recorder.recording()) {
    const auto now_ns = Nanoseconds(Clock::now());
    for (size_t n = 0; n < tensors.size(); ++n) {
      recorder.Arrived({names[n], static_cast<int64_t>(tensors[n]->size()), static_cast<int32_t>(tensors[n]->dtype()),
                        process_set_id},
                       now_ns);
    }
  }
  return false;
}

void Popped(common::ProcessSet&, std::deque<common::Request>&) {}

bool Ready(const common::Request&, int, int, bool ready) { return ready; }

void Fuse(common::Controller&, std::deque<common::Response>&, common::ResponseList&) {}

bool Cacheable(const common::Response&) { return true; }

void Entries(const common::Response&, common::ProcessSet&) {}

void Performed(common::ProcessSet&, const common::Response& response,
               const std::vector<common::TensorTableEntry>& entries, const common::Status&, Clock::time_point start) {
  auto& runtime = GetRuntime();
  const auto type = response.response_type();
  if (type == common::Response::JOIN) {
    runtime.automatic_names.Meet();
  }
  int64_t bytes = 0;
  if (type != common::Response::JOIN && type != common::Response::BARRIER) {
    for (const auto& entry : entries) {
      bytes += entry.tensor != nullptr ? static_cast<int64_t>(entry.tensor->size()) : 0;
    }
  }
  runtime.recorder.Performed(KindOf(type), response.tensor_names(), bytes, Nanoseconds(start),
                             Nanoseconds(Clock::now()));
}

void Operations(common::HorovodGlobalState&, std::vector<std::shared_ptr<common::AllreduceOp>>&,
                std::vector<std::shared_ptr<common::BroadcastOp>>&) {}

void Cycle(common::HorovodGlobalState&, common::ProcessSet& process_set) {
  if (process_set.IsCurrentProcessIncluded()) {
    GetRuntime().recorder.Coordinated();
  }
}

}  // namespace paceline
}  // namespace horovod
