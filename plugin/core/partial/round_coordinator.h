// Which rounds of partial collectives are ready: what the coordinator of a process set counts, over all names.

#ifndef PACELINE_CORE_PARTIAL_ROUND_COORDINATOR_H
#define PACELINE_CORE_PARTIAL_ROUND_COORDINATOR_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/fusion/active_plan.h"
#include "core/partial/lateness.h"
#include "core/partial/standstill.h"
#include "core/partial/votes.h"

namespace paceline::core {

// Messages of the ranks come by name; a name is begun before its first one. After all that came together, Ready() says
// what can be sent. One thread at a time.
class RoundCoordinator {
 public:
  // Those that go together with this name, itself among them; null if it goes alone.
  using GroupOf = std::function<const MergeGroup*(const std::string& name)>;

  explicit RoundCoordinator(int32_t size)
      : unanswered_(static_cast<std::size_t>(size), 0),
        flushing_(static_cast<std::size_t>(size), 0),
        attendance_(size),
        lateness_(std::make_shared<Lateness>(size)) {}

  bool Knows(const std::string& name) const { return counts_.count(name) > 0; }
  // A name that is not known. As in Votes: 0 <= rule.count <= size.
  void Begin(const std::string& name, QuorumRule rule);

  // Messages about a known name, as in Votes. Votes and flushes stand in Horovod's table of requests.
  void Vote(const std::string& name, int32_t rank);
  void Flush(const std::string& name, int32_t rank);
  void Arrived(const std::string& name, int32_t rank, int64_t round);
  // A rank handed in a tensor that does not fit: all ranks are to be told. Horovod finds out when it compares that
  // with another request, so this takes one.
  void Misfit(const std::string& name);
  // Whether calls of this rank are to be expected.
  void SetAbsent(int32_t rank, bool absent) {
    standstill_.Changed();
    attendance_.absent[static_cast<std::size_t>(rank)] = absent;
  }

  // What became ready, each round once. Names that go together wait for each other for as long as their group's
  // patience. A name that nobody has called until then (its layer is frozen, say) is not waited for again before its
  // next call.
  std::vector<std::string> Ready(const GroupOf& group_of, int64_t now_ns);
  // Whether Ready() is to be asked again though nothing comes: names wait for others of their group.
  bool waiting() const { return waiting_; }
  // Whether Ready() is to be asked now though nothing comes: all ranks wait for each other.
  bool StandsStill(int64_t now_ns) { return standstill_.Due(now_ns) && AllWait(); }
  // Of what Ready() has returned, the rounds that begin because of a standstill.
  const std::vector<Standstill::Name>& begun_by_standstill() const { return begun_by_standstill_; }

  // Counted here; any thread may read it.
  std::shared_ptr<const Lateness> lateness() const { return lateness_; }
  std::optional<Lateness::Straggler> Straggler(int64_t now_ns) {
    return lateness_->Look(static_cast<int64_t>(counts_.size()), now_ns);
  }

  // The round that was ready is on its way to all ranks, and the next one begins.
  void Sent(const std::string& name);
  // An error about this name is on its way to all ranks: as if it had never been called.
  void Failed(const std::string& name);

 private:
  struct Count {
    Count(std::string of, int32_t size, QuorumRule rule)
        : name(std::move(of)), votes(size, rule), owes(static_cast<std::size_t>(size), false) {}

    const std::string name;
    Votes votes;
    bool open = false;       // in open_
    bool announced = false;  // Ready() has named it in this round
    int64_t ready_ns = 0;    // since when; 0: it is not
    int64_t last_ns = 0;     // since when the round before was
    std::vector<bool> owes;  // by rank: the round before was sent without it, and nothing came since
    int32_t requests = 0;    // of this round, in Horovod's table
    int32_t misfits = 0;
    bool silent = false;  // its group has waited for it without a call
  };

  static bool Complete(const Count& count);
  bool Holds(const MergeGroup& group) const;
  void Release(const MergeGroup& group);
  Count& Open(const std::string& name);
  void Answered(const Count& count, bool closing);
  bool AllWait() const;
  void NoteBegun(const Count& count);
  void Came(Count& count, int32_t rank);
  void Settle(int64_t now_ns);

  bool waiting_ = false;
  std::vector<int32_t> unanswered_;  // by rank: votes whose rounds were not sent
  std::vector<int32_t> flushing_;    // by rank: flushes that were not answered
  Attendance attendance_;
  Standstill standstill_;
  std::vector<Standstill::Name> begun_by_standstill_;
  const std::shared_ptr<Lateness> lateness_;
  std::vector<std::pair<int32_t, int64_t>> late_;  // ranks that came late since Settle, and the time of their round
  std::unordered_map<std::string, Count> counts_;
  // Those whose round under way somebody has called in: no others can become ready.
  std::vector<Count*> open_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_PARTIAL_ROUND_COORDINATOR_H
