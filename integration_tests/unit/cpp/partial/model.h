// A model of a job with partial collectives, small enough to be searched: RoundState and Votes as they are, and in
// place of Horovod and its buffers as little as there can be.

#ifndef PACELINE_UNIT_PARTIAL_MODEL_H
#define PACELINE_UNIT_PARTIAL_MODEL_H

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/partial/round_state.h"
#include "core/partial/votes.h"
#include "partial/local.h"

namespace partial_model {

using paceline::core::Attendance;
using paceline::core::RoundState;
using paceline::core::Votes;

// The job's state. Contributions are powers of 16, so that a sum shows which were lost or counted twice. `State` is
// RoundState, or one with a fault.
//
// A cycle takes the queues of one process set at once. In Horovod each rank takes its own at its own time, but what is
// called between that and the count is in the next cycle either way. Performing is split: each rank begins and ends
// each round on its own, no rank ends before all have begun, and calls may come at any time between. Sets have their
// cycles one after the other, in any order. What a rank waits for expires at any time after it began, or never.
template <typename State>
class Model {
 public:
  enum class Action : uint8_t { kCall, kPerform, kCycle, kExpire, kStandstill };
  struct Step {
    Action action;
    int number;  // of the rank; of the set, for a cycle and a standstill
  };

  explicit Model(const Job& job) : job_(&job) {
    for (int name = 0; name < job.names; ++name) {
      votes_.emplace_back(job.Of(name).size(), job.rule);
    }
    for (const Members& set : job.sets) {
      attendance_.emplace_back(set.size());
    }
  }

  std::vector<Step> Enabled() const {
    std::vector<Step> steps;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (MayCall(rank)) {
        steps.push_back({Action::kCall, rank});
      }
      if (MayPerform(rank)) {
        steps.push_back({Action::kPerform, rank});
      }
      if (job_->elsewhere() && job_->reports_absence && Waits(ranks_[rank]) && !ranks_[rank].expired) {
        steps.push_back({Action::kExpire, rank});
      }
    }
    for (int set = 0; performing_.empty() && set < Sets(); ++set) {
      if (MayCycle(set)) {
        steps.push_back({Action::kCycle, set});
      } else if (job_->ends_standstills && StandsStill(set)) {
        steps.push_back({Action::kStandstill, set});
      }
    }
    return steps;
  }

  // c, p, e and a rank: calls, performs, waits for long; y and a set: a cycle; s and a set: a standstill is noticed.
  static std::string Text(const Step& step) {
    return "cpyes"[static_cast<int>(step.action)] + std::to_string(step.number);
  }

  void Do(const Step& step) {
    switch (step.action) {
      case Action::kCall:
        Call(step.number);
        break;
      case Action::kPerform:
        Perform(step.number);
        break;
      case Action::kCycle:
        Cycle(step.number);
        break;
      case Action::kExpire:
        ranks_[step.number].expired = true;
        break;
      case Action::kStandstill:
        attendance_[step.number].standstill = true;
        Cycle(step.number);
        attendance_[step.number].standstill = false;
        break;
    }
    CheckSums();
  }

  // In a state without a next step.
  void CheckFinal() const {
    for (int number = 0; number < kRanks; ++number) {
      Expect(ranks_[number].program == ProgramLength(number) && !Waits(ranks_[number]), "a deadlock");
    }
    for (int name = 0; name < job_->names; ++name) {
      Expect(performed_[name] == contributed_[name], "a contribution is left behind by the flush");
      for (const int number : job_->Of(name).ranks) {
        Expect(ranks_[number].names[name].answers == contributed_[name], "a rank lacks results after the flush");
      }
    }
  }

  // All that decides about the future. Sums are left out: what may follow does not depend on them, and CheckSums has
  // compared them with what is in here. Where votes are counted, ranks have equal rights, and states that differ in
  // their order only are one.
  std::string Key() const;

 private:
  struct Message {
    enum class Kind : char { kVote, kArrived, kFlush } kind;
    int name;
    int64_t round;
  };

  struct Rank {
    std::array<Local<State>, kMostNames> names;
    std::vector<Message> queue;
    int program = 0;  // calls made, then flushes
    int passed = 0;   // barriers
    bool in_barrier = false;
    bool expired = false;  // what it waits for has lasted
    int performed = 0;     // begins and ends in this cycle
  };

  int Sets() const { return static_cast<int>(job_->sets.size()); }
  const Members& BarrierSet() const { return job_->sets.back(); }

  // Of the sets that the rank is in.
  std::vector<int> NamesOf(int number) const {
    std::vector<int> names;
    for (int name = 0; name < job_->names; ++name) {
      if (job_->Of(name).IndexOf(number) >= 0) {
        names.push_back(name);
      }
    }
    return names;
  }
  int Calls(int number) const { return job_->calls * static_cast<int>(NamesOf(number).size()); }
  int ProgramLength(int number) const {
    return Calls(number) + (job_->flushes_at_once ? 1 : static_cast<int>(NamesOf(number).size()));
  }

  static bool WaitsFor(const Local<State>& local) { return local.state.waiting(); }
  bool Waits(const Rank& rank) const {
    return rank.in_barrier || std::any_of(rank.names.begin(), rank.names.end(), WaitsFor);
  }
  // See core/partial/holdups.h: something that is no call of this set.
  bool Absent(int number, int set) const {
    const Rank& rank = ranks_[number];
    bool elsewhere = rank.in_barrier;
    for (int name = 0; name < job_->names; ++name) {
      elsewhere = elsewhere || (job_->set_of[name] != set && WaitsFor(rank.names[name]));
    }
    return rank.expired && elsewhere;
  }

  bool MayCall(int number) const {
    const Rank& rank = ranks_[number];
    const int names = static_cast<int>(NamesOf(number).size());
    const bool step_goes_on = rank.program < Calls(number) && rank.program % names != 0;
    return rank.program < ProgramLength(number) && !rank.in_barrier &&
           ((step_goes_on && !job_->blocking) || !Waits(rank));
  }

  void Call(int number) {
    Rank& rank = ranks_[number];
    const std::vector<int> names = NamesOf(number);
    rank.expired = false;
    if (MeetsNow(number)) {
      rank.in_barrier = true;
      ++rank.passed;
      return;
    }
    const int at = rank.program++;
    if (at >= Calls(number)) {
      for (std::size_t n = 0; n < names.size(); ++n) {
        if (job_->flushes_at_once || static_cast<int>(n) == at - Calls(number)) {
          rank.names[names[n]].state.Flush();
          rank.queue.push_back({Message::Kind::kFlush, names[n], 0});
        }
      }
      return;
    }
    const int name = names[static_cast<std::size_t>(at) % names.size()];
    if (name == job_->rare_name && at / static_cast<int>(names.size()) % job_->rare != 0) {
      return;
    }
    Local<State>& local = rank.names[name];
    const int64_t contribution = int64_t{1} << (4 * (number * job_->calls + at / static_cast<int>(names.size())));
    contributed_[name] += contribution;
    const RoundState::Reply reply = local.Call(contribution);
    if (reply.kind == RoundState::Reply::Kind::kVote) {
      rank.queue.push_back({Message::Kind::kVote, name, reply.round});
    } else if (job_->reports_late) {
      rank.queue.push_back({Message::Kind::kArrived, name, reply.round});
    }
  }

  bool MeetsNow(int number) const {
    const int names = static_cast<int>(NamesOf(number).size());
    const int step = ranks_[number].program / names;
    const int due = job_->barrier < 0 || step < job_->barrier ? 0 : (job_->again ? step - job_->barrier + 1 : 1);
    return BarrierSet().IndexOf(number) >= 0 && ranks_[number].program % names == 0 && ranks_[number].passed < due;
  }

  bool AllInBarrier(int set) const {
    const auto& ranks = BarrierSet().ranks;
    return set == Sets() - 1 &&
           std::all_of(ranks.begin(), ranks.end(), [&](int number) { return ranks_[number].in_barrier; });
  }

  bool MayCycle(int set) const {
    bool something = AllInBarrier(set);
    const Members& members = job_->sets[set];
    for (int index = 0; index < members.size(); ++index) {
      const int number = members.ranks[index];
      const auto& queue = ranks_[number].queue;
      something = something || attendance_[set].absent[index] != Absent(number, set) ||
                  std::any_of(queue.begin(), queue.end(), [&](auto& m) { return job_->set_of[m.name] == set; });
    }
    return something;
  }

  // All ranks wait, in this state at least, and a round that has been called does not begin.
  bool StandsStill(int set) const {
    const auto& members = job_->sets[set].ranks;
    bool called = false;
    for (int name = 0; name < job_->names; ++name) {
      called = called || (job_->set_of[name] == set && votes_[name].round() > 0 && !votes_[name].idle());
    }
    return called && std::all_of(members.begin(), members.end(), [&](int number) { return Waits(ranks_[number]); });
  }

  void Cycle(int set) {
    const Members& members = job_->sets[set];
    for (int index = 0; index < members.size(); ++index) {
      const int number = members.ranks[index];
      attendance_[set].absent[index] = Absent(number, set);
      std::vector<Message> of_others;
      for (const Message& message : std::exchange(ranks_[number].queue, {})) {
        if (job_->set_of[message.name] == set) {
          Count(number, index, message);
        } else {
          of_others.push_back(message);
        }
      }
      ranks_[number].queue = of_others;
    }
    for (int index = 0; index < members.size(); ++index) {
      attendance_[set].blocked[index] = false;
      for (int name = 0; name < job_->names; ++name) {
        if (job_->set_of[name] == set && votes_[name].rank(index).voted) {
          attendance_[set].blocked[index] = true;
        }
      }
    }
    for (int name = 0; name < job_->names; ++name) {
      if (job_->set_of[name] == set && votes_[name].Settle(attendance_[set])) {
        Round round;
        round.name = name;
        round.closing = votes_[name].closing();
        round.all_present = AllPresent(name);
        for (int index = 0; index < members.size(); ++index) {
          const bool expected = attendance_[set].Expects(static_cast<std::size_t>(index));
          round.absent |= (expected ? 0U : 1U) << members.ranks[index];
        }
        performing_.push_back(round);
        votes_[name].Executed();
      }
    }
    if (AllInBarrier(set)) {
      for (const int number : BarrierSet().ranks) {
        ranks_[number].in_barrier = ranks_[number].expired = false;
      }
    }
  }

  void Count(int number, int index, const Message& message) {
    Votes& votes = votes_[message.name];
    bool counted = true;
    if (message.kind == Message::Kind::kFlush) {
      counted = votes.Flush(index);
    } else if (message.kind == Message::Kind::kArrived) {
      counted = votes.Arrived(index, message.round);
    } else if (!ranks_[number].names[message.name].state.Stale(message.round)) {
      counted = votes.Vote(index);
    }
    Expect(counted, "a rank votes twice");
  }

  bool AllPresent(int name) const {
    bool all = true;
    const int set = job_->set_of[name];
    for (int index = 0; index < job_->Of(name).size(); ++index) {
      all = all && attendance_[set].Expects(static_cast<std::size_t>(index)) && !votes_[name].rank(index).flushing;
    }
    return all;
  }

  bool MayPerform(int number) const {
    const auto at = static_cast<std::size_t>(ranks_[number].performed);
    return at < 2 * performing_.size() && job_->Of(performing_[0].name).IndexOf(number) >= 0 &&
           (at % 2 == 0 || performing_[at / 2].begun == job_->Of(performing_[0].name).size());
  }

  void Perform(int number) {
    Rank& rank = ranks_[number];
    const int at = rank.performed++;
    Round& round = performing_[at / 2];
    if (at % 2 == 0) {
      Begin(number, round);
    } else {
      rank.names[round.name].End(round);
      rank.expired = rank.expired && Waits(rank);
    }
    const auto& members = job_->Of(round.name).ranks;
    const int all = 2 * static_cast<int>(performing_.size());
    if (std::all_of(members.begin(), members.end(), [&](int other) { return ranks_[other].performed == all; })) {
      performing_.clear();
      for (Rank& r : ranks_) {
        r.performed = 0;
      }
    }
  }

  void Begin(int number, Round& round) {
    const Local<State>& local = ranks_[number].names[round.name];
    ranks_[number].names[round.name].Begin(*job_, number, round);
    if (++round.begun == job_->Of(round.name).size()) {
      CheckRound(*job_, round, local.state.executed());
      performed_[round.name] += round.sum;
    }
  }

  // What is true in every state: each contribution is in one place, and each result of a round has been given to each
  // rank once, or waits there to be given.
  void CheckSums() const {
    for (int name = 0; name < job_->names; ++name) {
      int64_t found = performed_[name];
      for (const Round& round : performing_) {
        found += round.name == name && round.begun < job_->Of(name).size() ? round.sum : 0;
      }
      for (const Rank& rank : ranks_) {
        rank.names[name].Check();
        found += rank.names[name].send;
      }
      Expect(found == contributed_[name], "a contribution is lost or counted twice");
    }
  }

  const Job* job_;
  std::array<Rank, kRanks> ranks_;
  std::vector<Votes> votes_;            // by name
  std::vector<Attendance> attendance_;  // by set
  std::vector<Round> performing_;
  std::array<int64_t, kMostNames> contributed_{}, performed_{};
};

template <typename State>
std::string Model<State>::Key() const {
  std::array<std::string, kRanks> of_rank;
  std::string key;
  for (int number = 0; number < kRanks; ++number) {
    const auto put = [&](int64_t value) { of_rank[number].push_back(static_cast<char>(value)); };
    const Rank& rank = ranks_[number];
    put(rank.program);
    put(rank.performed + (rank.in_barrier ? 32 : 0) + (rank.expired ? 64 : 0));
    put(rank.passed);
    for (int set = 0; set < Sets(); ++set) {
      const int index = job_->sets[set].IndexOf(number);
      put(index >= 0 && attendance_[set].absent[index] ? 1 : 0);
    }
    for (int name = 0; name < job_->names; ++name) {
      const Local<State>& local = rank.names[name];
      put(static_cast<int64_t>(local.state.phase()) + 8 * (local.state.begun() - local.state.executed()));
      put(local.state.executed());
      put(local.state.missed());
      put(local.state.pending());
      put(job_->Promised().max_lag > 0 && local.state.pending() > 0 ? local.weights : 0);
      put(job_->Promised().max_lag > 0 ? local.excused : 0);
      const int index = job_->Of(name).IndexOf(number);
      if (index >= 0) {
        const Votes::Rank& at = votes_[name].rank(index);
        put((at.flushing ? 1 : 0) + 2 * (at.voted ? 1 : 0) + 4 * (at.arrived ? 1 : 0));
        put(job_->rule.max_lag > 0 ? at.seen : 0);
      }
    }
    for (const Round& round : performing_) {
      put(((round.fresh >> number) & 1) + 2 * ((round.absent >> number) & 1));
    }
    for (const Message& message : rank.queue) {
      put(static_cast<int64_t>(message.kind) * kMostNames + message.name);
      put(message.round);
    }
  }
  for (const Round& round : performing_) {
    key.push_back(static_cast<char>(round.name + 4 * (round.closing ? 1 : 0) + 8 * (round.all_present ? 1 : 0)));
    key.push_back(static_cast<char>(round.flushing + 4 * round.contributing));
  }
  if (job_->rule.count > 0 && job_->sets.size() == 1) {
    std::sort(of_rank.begin(), of_rank.end());
  }
  for (const std::string& part : of_rank) {
    key += static_cast<char>(part.size()) + part;
  }
  return key;
}

}  // namespace partial_model

#endif  // PACELINE_UNIT_PARTIAL_MODEL_H
