// A model of a job with partial collectives, small enough to be searched: RoundState and Votes as they are, and in
// place of Horovod and its buffers as little as there can be.

#ifndef PACELINE_TESTS_PARTIAL_MODEL_H
#define PACELINE_TESTS_PARTIAL_MODEL_H

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/round_state.h"
#include "core/votes.h"
#include "partial_local.h"

namespace partial_model {

using paceline::core::RoundState;
using paceline::core::Votes;

// The job's state. Contributions are powers of 16, so that a sum shows which were lost or counted twice. `State` is
// RoundState, or one with a fault.
//
// A cycle takes all queues at once. In Horovod each rank takes its own at its own time, but what is called between that
// and the count is in the next cycle either way. Performing is split: each rank begins and ends each round on its own,
// no rank ends before all have begun, and calls may come at any time between.
template <typename State>
class Model {
 public:
  enum class Action : uint8_t { kCall, kPerform, kCycle };
  struct Step {
    Action action;
    int rank;
  };

  explicit Model(const Job& job) : job_(&job) {
    for (int name = 0; name < job.names; ++name) {
      votes_.emplace_back(kRanks, job.rule);
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
    }
    if (performing_.empty() && std::any_of(ranks_.begin(), ranks_.end(), [](auto& r) { return !r.queue.empty(); })) {
      steps.push_back({Action::kCycle, 0});
    }
    return steps;
  }

  void Do(const Step& step) {
    switch (step.action) {
      case Action::kCall:
        Call(step.rank);
        break;
      case Action::kPerform:
        Perform(step.rank);
        break;
      case Action::kCycle:
        Cycle();
        break;
    }
    CheckSums();
  }

  // In a state without a next step.
  void CheckFinal() const {
    for (const Rank& rank : ranks_) {
      Expect(rank.program == ProgramLength() && !rank.in_barrier && !Waits(rank), "a deadlock");
    }
    for (int name = 0; name < job_->names; ++name) {
      Expect(performed_[name] == contributed_[name], "a contribution is left behind by the flush");
      for (const Rank& rank : ranks_) {
        Expect(rank.names[name].answers == contributed_[name], "a rank lacks results after the flush");
      }
    }
  }

  // All that decides about the future. Sums are left out: what may follow does not depend on them, and CheckSums has
  // compared them with what is in here. Where votes are counted, ranks have equal rights, and states that differ in
  // their order only are one.
  std::string Key() const;

 private:
  struct Message {
    enum class Kind : char { kVote, kArrived, kAbsent, kFlush } kind;
    int name;
    int64_t round;
  };

  struct Rank {
    std::array<Local<State>, kMostNames> names;
    std::vector<Message> queue;
    int program = 0;  // calls made, then flushes
    bool passed = false, in_barrier = false;
    int performed = 0;  // begins and ends in this cycle
  };

  int Calls() const { return job_->calls * job_->names; }
  int ProgramLength() const { return Calls() + (job_->flushes_at_once ? 1 : job_->names); }

  bool Waits(const Rank& rank) const {
    return std::any_of(rank.names.begin(), rank.names.end(), [](const auto& local) { return local.state.waiting(); });
  }

  bool MayCall(int number) const {
    const Rank& rank = ranks_[number];
    const bool step_goes_on = rank.program < Calls() && rank.program % job_->names != 0;
    return rank.program < ProgramLength() && !rank.in_barrier && ((step_goes_on && !job_->blocking) || !Waits(rank));
  }

  void Call(int number) {
    Rank& rank = ranks_[number];
    if (rank.program == job_->barrier * job_->names && !rank.passed) {
      rank.passed = rank.in_barrier = true;
      for (int name = 0; name < job_->names; ++name) {
        rank.queue.push_back({Message::Kind::kAbsent, name, 0});
      }
      return;
    }
    const int at = rank.program++;
    if (at >= Calls()) {
      for (int name = 0; name < job_->names; ++name) {
        if (job_->flushes_at_once || name == at - Calls()) {
          rank.names[name].state.Flush();
          rank.queue.push_back({Message::Kind::kFlush, name, 0});
        }
      }
      return;
    }
    const int name = at % job_->names;
    Local<State>& local = rank.names[name];
    const int64_t contribution = int64_t{1} << (4 * (number * job_->calls + at / job_->names));
    contributed_[name] += contribution;
    const RoundState::Reply reply = local.Call(contribution);
    if (reply.kind == RoundState::Reply::Kind::kVote) {
      rank.queue.push_back({Message::Kind::kVote, name, reply.round});
      return;
    }
    if (job_->reports_late) {
      rank.queue.push_back({Message::Kind::kArrived, name, reply.round});
    }
  }

  void Cycle() {
    for (int number = 0; number < kRanks; ++number) {
      for (const Message& message : std::exchange(ranks_[number].queue, {})) {
        Votes& votes = votes_[message.name];
        const bool was_ready = votes.ready();
        Votes::Tally tally = Votes::Tally::kCounted;
        if (message.kind == Message::Kind::kFlush) {
          tally = votes.Flush(number);
        } else if (message.kind == Message::Kind::kArrived) {
          tally = votes.Arrived(number, message.round);
        } else if (message.kind == Message::Kind::kAbsent) {
          tally = job_->reports_absence ? votes.Absent(number) : tally;
        } else if (!ranks_[number].names[message.name].state.Stale(message.round)) {
          tally = votes.Vote(number);
        }
        Expect(tally != Votes::Tally::kDefect, "a rank votes twice");
        Expect((tally == Votes::Tally::kReady) == (!was_ready && votes.ready()), "readiness is not told once");
      }
    }
    const std::vector<bool> blocked = Blocked();
    for (Votes& votes : votes_) {
      const bool was_ready = votes.ready();
      const Votes::Tally tally = votes.Settle(blocked);
      Expect((tally == Votes::Tally::kReady) == (!was_ready && votes.ready()), "readiness is not told once");
    }
    for (int name = 0; name < job_->names; ++name) {
      if (votes_[name].ready()) {
        Round round;
        round.name = name;
        round.closing = votes_[name].closing();
        round.all_present = AllPresent(name);
        performing_.push_back(round);
        votes_[name].Executed();
      }
    }
    if (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.in_barrier; })) {
      for (int number = 0; number < kRanks; ++number) {
        ranks_[number].in_barrier = false;
        for (Votes& votes : votes_) {
          votes.Present(number);
        }
      }
    }
  }

  std::vector<bool> Blocked() const {
    std::vector<bool> blocked(kRanks, false);
    for (int number = 0; number < kRanks; ++number) {
      blocked[number] =
          std::any_of(votes_.begin(), votes_.end(), [&](const Votes& votes) { return votes.rank(number).voted; });
    }
    return blocked;
  }

  bool AllPresent(int name) const {
    bool all = true;
    for (int number = 0; number < kRanks; ++number) {
      all = all && votes_[name].rank(number).standing == Votes::Standing::kPresent;
    }
    return all;
  }

  bool MayPerform(int number) const {
    const auto at = static_cast<std::size_t>(ranks_[number].performed);
    return at < 2 * performing_.size() && (at % 2 == 0 || performing_[at / 2].begun == kRanks);
  }

  void Perform(int number) {
    Rank& rank = ranks_[number];
    const int at = rank.performed++;
    Round& round = performing_[at / 2];
    at % 2 == 0 ? Begin(number, round) : rank.names[round.name].End(round);
    const auto finished = [&](const Rank& r) { return r.performed == 2 * static_cast<int>(performing_.size()); };
    if (std::all_of(ranks_.begin(), ranks_.end(), finished)) {
      performing_.clear();
      for (Rank& r : ranks_) {
        r.performed = 0;
      }
    }
  }

  void Begin(int number, Round& round) {
    const Local<State>& local = ranks_[number].names[round.name];
    ranks_[number].names[round.name].Begin(*job_, number, round);
    if (++round.begun == kRanks) {
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
        found += round.name == name && round.begun < kRanks ? round.sum : 0;
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
  std::vector<Votes> votes_;  // by name
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
    put(rank.performed + (rank.passed ? 16 : 0) + (rank.in_barrier ? 32 : 0));
    for (int name = 0; name < job_->names; ++name) {
      const Local<State>& local = rank.names[name];
      put(static_cast<int64_t>(local.state.phase()) + 8 * (local.state.begun() - local.state.executed()));
      put(local.state.executed());
      put(local.state.missed());
      put(local.state.pending());
      put(job_->Promised().max_lag > 0 && local.state.pending() > 0 ? local.weights : 0);
      const Votes::Rank& at = votes_[name].rank(number);
      put(static_cast<int64_t>(at.standing) + 4 * (at.voted ? 1 : 0) + 8 * (at.arrived ? 1 : 0));
      put(job_->rule.max_lag > 0 ? at.seen : 0);
    }
    for (const Round& round : performing_) {
      put((round.fresh >> number) & 1);
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
  if (job_->rule.count > 0) {
    std::sort(of_rank.begin(), of_rank.end());
  }
  for (const std::string& part : of_rank) {
    key += static_cast<char>(part.size()) + part;
  }
  return key;
}

}  // namespace partial_model

#endif  // PACELINE_TESTS_PARTIAL_MODEL_H
