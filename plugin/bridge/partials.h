// All partial collectives of one library, and the coordinator's counts.

#ifndef PACELINE_BRIDGE_PARTIALS_H
#define PACELINE_BRIDGE_PARTIALS_H

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bridge/partial.h"
#include "core/votes.h"

namespace horovod {
namespace paceline {

// Methods without a note are called by the background thread, about the process set of the present cycle.
class Partials {
 public:
  // A new world: nothing was begun.
  void Reset();
  // Any thread: the channel of a call, made if it is the first of its name. Null if there is one by other rules.
  std::shared_ptr<PartialChannel> Of(const PartialMark& mark, int32_t process_set_id, int32_t size);
  // Any thread: null if no call of this name was partial.
  std::shared_ptr<PartialChannel> Find(const std::string& name, int32_t process_set_id) const;
  // Any thread: what all names of a process set have counted.
  std::vector<::paceline::core::RoundState::Counters> Counters(int32_t process_set_id) const;

  // A coordination round of this process set begins.
  void Cycle(int32_t process_set_id) { current_ = process_set_id; }
  // Drops what is stale, and tells the coordinator when this rank is held up by something else.
  void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages);
  // Whether this request is one of ours, and then its verdict: Counted() decides.
  bool Counts(const common::Request& request, int32_t size);
  bool Noted(const common::Request& request);
  std::vector<std::string> Counted();
  // Messages of partial tensors have no others in them.
  void Fuse(common::Controller& controller, std::deque<common::Response>& responses, common::ResponseList& list) const;
  bool Has(const common::Response& response) const;
  void Entries(const common::Response& response, common::ProcessSet& process_set);
  void Performed(const common::Response& response);

 private:
  using Key = std::pair<int32_t, std::string>;

  struct Count {
    ::paceline::core::Votes votes;
    bool changed = false, announced = false;
  };

  // What this rank has handed in to full operations that all ranks must join, and when, by name.
  using Outstanding = std::unordered_map<std::string, int64_t>;

  void TellAbsence(common::ProcessSet& process_set, std::deque<common::Request>& messages);
  void Take(Count& count, const common::Request& request, int64_t round);

  std::atomic<bool> used_{false};
  int32_t current_ = 0;
  // On coordinators. `early_`: votes under names that this rank has not called yet.
  std::map<Key, Count> counts_;
  std::map<Key, std::vector<common::Request>> early_;
  std::map<int32_t, Outstanding> outstanding_;
  std::map<int32_t, bool> absent_;  // what the coordinator was told last

  mutable std::mutex mutex_;  // protects the map
  std::map<Key, std::shared_ptr<PartialChannel>> channels_;
};

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_PARTIALS_H
