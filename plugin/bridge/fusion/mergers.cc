#include "bridge/fusion/mergers.h"

#include <iterator>

namespace horovod {
namespace paceline {

void Mergers::Reset() {
  std::lock_guard<std::mutex> lock(mutex_);
  mergers_.clear();
  used_ = false;
}

void Mergers::Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& merger = mergers_[process_set_id];
    if (merger == nullptr || !merger->Serves(*process_set.controller)) {
      // The id of a removed process set is given again. All ranks of the new one begin alike, whatever they were in.
      merger = std::make_shared<Merger>(process_set_id, process_set.controller, ++made_);
    }
    if (process_set_id == 0) {
      for (auto other = mergers_.begin(); other != mergers_.end();) {
        other = other->second->orphan() ? mergers_.erase(other) : std::next(other);
      }
    }
    current_ = merger;
  }
  current_->Cycle(state, process_set, wanted_);
  if (current_->watching()) {
    used_ = true;
  }
}

std::shared_ptr<Merger> Mergers::Watching(int32_t process_set_id) const {
  return used_ ? Find(process_set_id) : nullptr;
}

std::shared_ptr<Merger> Mergers::Find(int32_t process_set_id) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = mergers_.find(process_set_id);
  return found == mergers_.end() ? nullptr : found->second;
}

std::vector<int32_t> Mergers::Ids() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int32_t> ids;
  for (const auto& [id, merger] : mergers_) {
    ids.push_back(id);
  }
  return ids;
}

}  // namespace paceline
}  // namespace horovod
