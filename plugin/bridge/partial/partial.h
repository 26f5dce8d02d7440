// All partial collectives of one library.

#ifndef PACELINE_BRIDGE_PARTIAL_PARTIAL_H
#define PACELINE_BRIDGE_PARTIAL_PARTIAL_H

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bridge/exchange.h"
#include "bridge/joined.h"
#include "bridge/message_plan.h"
#include "bridge/partial/coordinator.h"
#include "bridge/partial/rounds.h"
#include "core/partial/holdups.h"
#include "horovod/common/timeline.h"

namespace horovod::paceline {

// What there is of one name.
struct PartialOperation : ExchangeState {
  std::shared_ptr<PartialChannel> Channel() const {
    const std::lock_guard<std::mutex> lock(mutex);
    return channel;
  }

  mutable std::mutex mutex;  // protects everything below; a first call is made under it, and who looks waits
  std::shared_ptr<PartialChannel> channel;  // once Horovod has taken the first call
  // Of the next call: that it flushes; and for a first one what it goes on from.
  bool flush_next = false;
  std::shared_ptr<const PartialState> restored;
};

// The exchange "partial". A name whose calls were partial stays so in this world: its rounds go on whoever makes the
// calls, and a plain allreduce of that name is refused.
class Partial : public Exchange {
 public:
  Partial(Operations& operations, const MessagePlan& plan);

  // Any thread: null if no call of this name was partial.
  std::shared_ptr<PartialChannel> Find(int32_t process_set_id, const std::string& name) const;
  // Any thread: what all names of a process set have counted.
  std::vector<::paceline::core::RoundState::Counters> Counters(int32_t process_set_id) const;
  // Any thread: how late the ranks of a process set were; of a rank that does not coordinate it, without rounds.
  ::paceline::core::Lateness::Totals Lateness(int32_t process_set_id) const;
  // Any thread: the calls of the name that was called most often; with each update of a rank all its names are called.
  int64_t Updates() const;
  // Any thread: begin to flush all names, in all process sets, which this rank makes no more calls under.
  void FlushAll();
  // Any thread: what the next call under this name goes on from. False if this cannot be (see PartialChannel::Restore).
  bool Restore(int32_t process_set_id, const std::string& name, PartialState state);
  // Any thread: the next call of this name flushes, and contributes nothing.
  void FlushNext(int32_t process_set_id, const std::string& name);

  const char* word() const override { return "partial"; }
  std::string Title(const std::string& name) const override { return "Partial allreduce of " + name; }
  std::shared_ptr<const ExchangeSettings> Parse(const std::vector<double>& settings,
                                                std::string& expected) const override;
  common::Status Call(ExchangeCall call) override;
  bool Has(const Operation& operation) const override;

  void BeginWorld() override;
  void EndProcessSet(int32_t process_set_id) override;
  bool Enqueue(AllreduceCall& call, common::Status& status) override;
  void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) override;
  // Drops what is stale, and tells the coordinator when something else holds this rank up.
  void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) override;
  // Patience, here and on the coordinator, is looked after in rounds: in every cycle while something waits.
  Clock::duration SleepLimit() override;
  bool TakeControlRequest(const common::Request& request) override;
  bool OverrideReady(const common::Request& request, int count, bool ready) override;
  void AddReadyNames(std::vector<std::string>& names) override;
  bool OwnsReadiness(const std::string& name) override;
  // Messages of partial tensors have no others in them; those of a group are sent in messages of their own.
  void Fuse(common::Controller& controller, std::deque<common::Response>& responses,
            common::ResponseList& list) override;
  bool Cacheable(const common::Response& response) override { return !Owns(response); }
  void BeforeExecute(common::ProcessSet& process_set, const common::Response& response) override;
  void AfterExecute(const Executed& executed) override;
  void Performed(const Executed& executed) override;

 private:
  // What the background thread keeps about a process set.
  struct Set {
    Set(int ranks, const PartialCoordinator::Find& find) : coordinator(ranks, find) {}

    PartialCoordinator coordinator;
    bool followed = false;  // what this rank hands in, by `holdups_`: from the first partial call in any set on
    bool used = false;      // this rank has made calls in it
    bool absent = false;    // what the coordinator was told last
    Joined joined;
  };

  // In all process sets, or in one.
  template <typename... ProcessSet>
  std::vector<std::shared_ptr<PartialChannel>> Channels(ProcessSet... process_set_id) const;
  bool Owns(const common::Response& response) const;
  void Began(const std::string& name, bool partial, int64_t now_ns);
  void FollowProcessSets(int64_t now_ns);
  void ReportStraggler(common::ProcessSet& process_set);
  void ReportStandstill() const;
  // For messages: the current process set, unless it has all ranks.
  std::string OfSet() const;
  void ReportAbsence(int64_t now_ns, common::ProcessSet& process_set, std::deque<common::Request>& messages);

  Operations& operations_;
  const std::shared_ptr<::paceline::core::MemoryPool> memory_ = std::make_shared<::paceline::core::MemoryPool>();

  // Background thread only.
  const MessagePlan& plan_;
  std::map<int32_t, Set> sets_;
  ::paceline::core::Holdups holdups_;
  Set* set_ = nullptr;  // of the present cycle
  common::Timeline* timeline_ = nullptr;
  int32_t current_ = 0;

  mutable std::mutex lateness_mutex_;  // protects the table
  std::map<int32_t, std::shared_ptr<const ::paceline::core::Lateness>> lateness_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PARTIAL_PARTIAL_H
