// Coordination that costs little: the background thread sleeps until something happens, and rounds take few hops.

#ifndef PACELINE_BRIDGE_COORDINATION_COORDINATION_H
#define PACELINE_BRIDGE_COORDINATION_COORDINATION_H

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bridge/coordination/control_messages.h"
#include "bridge/coordination/rounds.h"
#include "bridge/participant.h"
#include "bridge/transport.h"
#include "core/coordination/round_pacing.h"
#include "gloo/context.h"

namespace horovod::paceline {

// A round is a collective of all ranks, so whoever has something to hand in must wake the others. In every cycle the
// first thing that ranks tell each other is told by Rounds of the global process set: where that comes from another
// rank, the next cycle has begun. So an idle rank waits for it, for what its own threads hand in, and for no longer
// than a heartbeat, with which shutdown, stall inspector and ranks that have stopped are looked after.
//
// Only where Horovod coordinates over Gloo. Otherwise, and where it is not wanted, every cycle is Horovod's own.
class Coordination : public Participant {
 public:
  // Transports among the ranks of a process set; `ring` is called whenever an operation has completed or failed.
  struct Transports {
    std::function<std::unique_ptr<Transport>(const std::shared_ptr<gloo::Context>& context, std::function<void()> ring)>
        rounds;
    std::function<std::unique_ptr<Transport>(const std::shared_ptr<gloo::Context>& context)> control_messages;
  };
  // How long the background thread may sleep, as far as other participants are concerned.
  using SleepLimit = std::function<Clock::duration()>;

  static constexpr std::chrono::milliseconds kHeartbeat{1000};

  Coordination(Transports make, SleepLimit limit) : make_(std::move(make)), limit_(std::move(limit)) {}

  // Any thread: events instead of cycles, from the next world on; the same on all ranks.
  void Want(bool events) { wanted_ = events; }

  void BeginWorld() override;
  void WorkSubmitted() override;
  void Held() override;
  void WaitedFor() override;
  void TakenUp() override;
  bool Sleep(common::HorovodGlobalState& state) override;
  void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) override;
  bool CombineBits(::paceline::core::BitOperation operation, long long* words, int count) override;
  bool SendRequests(const common::RequestList& requests) override;
  bool GatherRequests(std::vector<common::RequestList>& by_rank) override;
  bool SendResponses(const common::ResponseList& responses) override;
  bool ReceiveResponses(common::ResponseList& responses) override;
  bool GatherInts(const std::array<int, 2>& values, std::vector<int>& all) override;
  void End() override;

 private:
  // Above that the first rank's messages, one to each other, take longer than Gloo's tree.
  static constexpr int kMostRanks = 64;

  // What begins a cycle: the first that ranks tell each other in it.
  enum class Entry { kBits, kOwnRound };

  void Begin(common::HorovodGlobalState& state);
  Rounds& In(const std::shared_ptr<gloo::Context>& context);
  // Of the current process set; null: Horovod's own way.
  ControlMessages* CurrentControlMessages();
  void ForgetRemoved(common::HorovodGlobalState& state);
  void AwaitReason(common::HorovodGlobalState& state);
  // Tells the pacing, and wakes the background thread if that brings the next round nearer.
  void Notify(const std::function<bool()>& pacing);
  void Ring();

  const Transports make_;
  const SleepLimit limit_;
  std::atomic<bool> wanted_{false};
  std::atomic<bool> on_{false};  // in this world
  // Background thread only.
  bool begun_ = false;
  Entry entry_ = Entry::kBits;
  std::shared_ptr<gloo::Context> global_;   // null: this rank is alone
  std::shared_ptr<gloo::Context> current_;  // of the process set whose coordination round is running
  std::map<std::shared_ptr<gloo::Context>, std::unique_ptr<Rounds>> rounds_;
  std::map<std::shared_ptr<gloo::Context>, std::unique_ptr<ControlMessages>> control_messages_;

  std::mutex mutex_;  // protects everything below; nothing else is locked under it
  std::condition_variable changed_;
  bool rung_ = false;
  ::paceline::core::RoundPacing pacing_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COORDINATION_COORDINATION_H
