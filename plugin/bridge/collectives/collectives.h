// Our own collectives, in front of Horovod's.

#ifndef PACELINE_BRIDGE_COLLECTIVES_COLLECTIVES_H
#define PACELINE_BRIDGE_COLLECTIVES_COLLECTIVES_H

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bridge/collectives/auto_choice.h"
#include "bridge/collectives/choice.h"
#include "bridge/collectives/flight.h"
#include "bridge/collectives/probed.h"
#include "bridge/message_reducer.h"
#include "bridge/participant.h"
#include "bridge/transport.h"

namespace horovod::paceline {

// Messages of one coordination round are under way together, and so are those that are carried behind them; the round
// ends with the last of them.
class Collectives : public Participant, public MessageReducer {
 public:
  // A transport among the ranks of a process set, for one round; null where there is none. The same on all ranks.
  using MakeTransport = std::function<std::unique_ptr<Transport>(common::ProcessSet&)>;

  Collectives(MakeTransport make, WorldEnd end) : make_(std::move(make)), end_(std::move(end)) {}

  void BeginWorld() override;
  void EndProcessSet(int32_t process_set_id) override;
  void AddOperations(common::HorovodGlobalState& state, std::vector<std::shared_ptr<common::AllreduceOp>>& allreduces,
                     std::vector<std::shared_ptr<common::BroadcastOp>>& broadcasts) override;
  // The agreement about a measured network: it holds from here on.
  void AfterExecute(const Executed& executed) override;
  void RoundPerformed(common::ProcessSet& process_set) override;
  void End() override;

  bool Supports(common::ProcessSet& process_set) const override { return Reaches(process_set); }
  std::chrono::nanoseconds Limit(common::ProcessSet& process_set) const override;
  bool Exact(const std::string& name, int64_t bytes) const override;
  void GoFastest(int32_t process_set_id, const std::unordered_set<std::string>& names) override;
  void GoAsChosen(int32_t process_set_id, const std::unordered_set<std::string>& names) override;
  void Begin(common::ProcessSet& process_set, int32_t process_set_id, const Values& values, bool followed,
             const std::string& name, std::function<void()> done) override;
  void Progress(std::chrono::steady_clock::time_point until) override;
  void Wake() override;
  bool InFlight() const override { return flight_ != nullptr && !flight_->idle(); }
  void Settle() override;
  void Finish(common::ProcessSet& process_set) override;
  void Fail(const std::exception& error) override;

  // --- For our operations, on the background thread.

  bool Reaches(common::ProcessSet& process_set) const;
  // The messages of this round. In the first of a process set the ranks compare what they have chosen. Throws
  // std::runtime_error if they differ, or a rank is lost.
  Flight& In(common::ProcessSet& process_set, int32_t process_set_id);
  // The measured network, in process sets of as many ranks as were measured, so all of them; null in others.
  ProbedNetwork ProbedAmong(int32_t ranks) const;
  // Of the collectives of this set, the next one's.
  uint32_t NextSequence(int32_t process_set_id);
  // What `auto` does with a message of the set whose messages are under way. Throws std::runtime_error as In.
  AutoChoice::Pick PickFor(int32_t process_set_id, int64_t bytes, bool encoded, bool followed = false);
  void Took(int32_t process_set_id, const AutoChoice::Pick& pick, double seconds);
  // Of messages like one before, the same: steps are alike, and a schedule may have thousands of operations.
  using Schedule = std::shared_ptr<const ::paceline::core::CollectiveSchedule>;
  Schedule AllreduceSchedule(::paceline::core::AllreduceMethod method, ::paceline::core::Place place,
                             const ::paceline::core::BlockedMessage& message);
  Schedule HalfSchedule(Half half, ::paceline::core::Place place, const ::paceline::core::BlockedMessage& message);

 private:
  struct OfSet {
    uint32_t sequence = 0;
    bool met = false;
    AutoChoice choice;
  };

  OfSet& Set(int32_t process_set_id);
  Schedule Remembered(int64_t what, ::paceline::core::Place place, const ::paceline::core::BlockedMessage& message,
                      const std::function<::paceline::core::CollectiveSchedule()>& make);
  AutoChoice::Pick PickToCarry(int32_t process_set_id, const Values& values, int32_t ranks, bool followed);
  void Carry(const std::function<void()>& part);

  const MakeTransport make_;
  const WorldEnd end_;
  PackingSpace space_;
  ProbedNetwork network_;  // of this world
  std::map<std::array<int64_t, 5>, Schedule> schedules_;
  size_t scheduled_ = 0;  // operations in all of them
  std::unique_ptr<Flight> flight_;
  int32_t flying_set_ = -1;
  bool trial_ = false;            // the last message that was picked for is one, and may be under way
  std::mutex wake_mutex_;         // protects the next two
  Transport* waiting_ = nullptr;  // the one that Progress waits for
  bool woken_ = false;
  std::mutex mutex_;  // protects sets_, the map: process sets are registered in threads of frameworks
  std::map<int32_t, OfSet> sets_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_COLLECTIVES_H
