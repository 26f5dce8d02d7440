#include "bridge/fusion/merging.h"

#include <algorithm>

#include "bridge/waking.h"

namespace horovod::paceline {

void Merging::BeginWorld() {
  mergers_.Reset();
  watched_ = false;
}

void Merging::Want(double policy) {
  wanted_.policy = policy;
  NotifyWorkSubmitted();  // a cycle notifies the other ranks
}

Clock::duration Merging::SleepLimit() {
  auto limit = Clock::duration::max();
  if (watched_) {
    for (const auto& merger : mergers_.All()) {
      limit = std::min(limit, merger->SleepLimit());
    }
  }
  return limit;
}

std::vector<int32_t> Merging::Ids() const {
  std::vector<int32_t> ids;
  for (const auto& merger : mergers_.All()) {
    ids.push_back(merger->process_set_id());
  }
  return ids;
}

void Merging::Arrived(const std::vector<std::shared_ptr<common::Tensor>>& /*tensors*/,
                      const std::vector<std::string>& names, int32_t process_set_id) {
  const auto merger = watched_ ? Find(process_set_id) : nullptr;
  if (merger == nullptr) {
    return;
  }
  const auto now_ns = Nanoseconds(Clock::now());
  for (const auto& name : names) {
    merger->Arrived(name, now_ns);
  }
}

void Merging::Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) {
  current_ = mergers_.FindOr(process_set_id, {}, [&] {
    return std::make_shared<Merger>(
        process_set_id, ++made_,
        [this, process_set_id](const std::string& name) { return waits_elsewhere_(process_set_id, name); }, reducer_);
  });
  current_->Cycle(state, process_set, wanted_);
  if (current_->watching()) {
    watched_ = true;
  }
}

// One rank's request is enough for a control operation.
bool Merging::OverrideReady(const common::Request& request, int count, bool ready) {
  const bool control = request.request_type() == common::Request::ALLREDUCE && IsControlOp(request.tensor_name());
  return control ? count == 1 : ready;
}

bool Merging::Cacheable(const common::Response& response) {
  return response.tensor_names().empty() || !IsControlOp(response.tensor_names()[0]);
}

}  // namespace horovod::paceline
