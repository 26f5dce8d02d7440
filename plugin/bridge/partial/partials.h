// All partial collectives of one library.

#ifndef PACELINE_BRIDGE_PARTIAL_PARTIALS_H
#define PACELINE_BRIDGE_PARTIAL_PARTIALS_H

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bridge/partial/coordinator.h"
#include "bridge/partial/joined.h"
#include "bridge/partial/rounds.h"
#include "core/partial/holdups.h"
#include "horovod/common/timeline.h"

namespace horovod {
namespace paceline {

// Methods without a note are called by the background thread, about the process set of the present cycle.
class Partials {
 public:
  using Group = PartialCoordinator::Group;

  Partials();

  // A new world: nothing was begun.
  void Reset();
  // Any thread: a call, as of PartialChannel. A first one that is refused leaves nothing behind.
  common::Status Call(common::ProcessSet& process_set, const PartialMark& mark, const Reducing& reducing,
                      const std::shared_ptr<common::Tensor>& tensor, const std::shared_ptr<common::Tensor>& output,
                      common::StatusCallback callback);
  // Any thread: null if no call of this name was partial.
  std::shared_ptr<PartialChannel> Find(const std::string& name, int32_t process_set_id) const;
  // Any thread: what all names of a process set have counted.
  std::vector<::paceline::core::RoundState::Counters> Counters(int32_t process_set_id) const;
  // Any thread: what the next call under this name goes on from. False if this cannot be (see PartialChannel::Restore).
  bool Restore(const std::string& name, int32_t process_set_id, PartialState state);

  // A coordination round of this process set begins.
  void Cycle(int32_t process_set_id, common::ProcessSet& process_set, common::Timeline& timeline);
  // Drops what is stale, and tells the coordinator when something else holds this rank up.
  void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages);
  // Whether this request is one of ours, and then its verdict: Counted() decides.
  bool Counts(const common::Request& request) { return set_->coordinator.Counts(request); }
  bool Counting(const std::string& name) const { return used_ && set_->coordinator.Has(name); }
  bool Noted(const common::Request& request);
  std::vector<std::string> Counted(const Group& group);
  // Messages of partial tensors have no others in them; those of a group travel in messages of their own.
  void Fuse(common::Controller& controller, std::deque<common::Response>& responses, common::ResponseList& list,
            const Group& group) const;
  bool Has(const common::Response& response) const;
  void Entries(const common::Response& response, common::ProcessSet& process_set);
  void Performed(const common::Response& response, common::ProcessSet& process_set);

 private:
  using Channels = std::unordered_map<std::string, std::shared_ptr<PartialChannel>>;
  using Key = std::pair<int32_t, std::string>;

  // What the background thread keeps about a process set.
  struct Set {
    Set(const std::shared_ptr<common::Controller>& of, const PartialCoordinator::Find& find)
        : controller(of), coordinator(of->GetSize(), find) {}

    std::weak_ptr<common::Controller> controller;
    PartialCoordinator coordinator;
    bool followed = false;  // what this rank hands in, by `holdups_`: from the first partial call in any set on
    bool used = false;      // this rank has made calls in it
    bool absent = false;    // what the coordinator was told last
    Joined joined;
  };

  // Under the lock: null if there is none.
  std::shared_ptr<PartialChannel> Get(const std::string& name, int32_t process_set_id) const;
  void Began(const std::string& name, bool partial, int64_t now_ns);
  void TellAbsence(int64_t now_ns, common::ProcessSet& process_set, std::deque<common::Request>& messages);

  std::atomic<bool> used_{false};
  // Background thread only.
  std::map<int32_t, Set> sets_;
  ::paceline::core::Holdups holdups_;
  Set* set_ = nullptr;  // of the present cycle
  common::Timeline* timeline_ = nullptr;
  int32_t current_ = 0;

  mutable std::mutex mutex_;                        // protects everything below
  std::unordered_map<int32_t, Channels> channels_;  // by process set
  std::map<Key, PartialState> restored_;            // for channels that are not made yet
};

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_PARTIAL_PARTIALS_H
