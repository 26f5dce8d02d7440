// The mergers of all process sets of one library, and what Python asks of them.

#ifndef PACELINE_BRIDGE_FUSION_MERGERS_H
#define PACELINE_BRIDGE_FUSION_MERGERS_H

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "bridge/fusion/merger.h"

namespace horovod {
namespace paceline {

class Mergers {
 public:
  // A new world: everything is as at the beginning, except for the policy asked for.
  void Reset();

  // The policy that this process wants, as a number that says whether two are the same; 0: the host's own merging.
  void Want(double policy) { wanted_ = policy; }

  // Background thread: begin a cycle of this process set, which becomes the current one.
  void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id);
  Merger& current() { return *current_; }

  // Any thread: the merger of this process set, if it watches arrivals (cheap where no policy was ever asked for).
  std::shared_ptr<Merger> Watching(int32_t process_set_id) const;
  // Any thread: the merger of this process set, or null.
  std::shared_ptr<Merger> Find(int32_t process_set_id) const;
  std::vector<int32_t> Ids() const;

 private:
  std::atomic<double> wanted_{0};
  std::atomic<bool> used_{false};  // some process set of this world watches arrivals, or did
  int64_t made_ = 0;               // background thread only, and so is the next
  std::shared_ptr<Merger> current_;

  mutable std::mutex mutex_;  // protects the map
  std::map<int32_t, std::shared_ptr<Merger>> mergers_;
};

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_FUSION_MERGERS_H
