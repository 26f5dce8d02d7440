// What a modelled job does under partial collectives, and what it may expect of each round.

#ifndef PACELINE_UNIT_PARTIAL_JOB_H
#define PACELINE_UNIT_PARTIAL_JOB_H

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/partial/votes.h"
#include "search.h"

namespace partial_model {

using paceline::core::Initiator;
using paceline::core::QuorumRule;

constexpr int kRanks = 3;
constexpr int kMostNames = 2;

// A process set: its ranks, and those as bits.
struct Members {
  std::vector<int> ranks;

  int size() const { return static_cast<int>(ranks.size()); }
  // In the set; negative for a rank that is not in it.
  int IndexOf(int rank) const {
    for (int n = 0; n < size(); ++n) {
      if (ranks[static_cast<std::size_t>(n)] == rank) {
        return n;
      }
    }
    return -1;
  }
};

// What the job does, and what may be wrong with it.
struct Job {
  QuorumRule rule;
  int names = 2, calls = 3;  // calls of each rank under each name
  bool blocking = true;      // a call waits for the one before it; otherwise a step's calls wait together
  int barrier = -1;          // before this step all ranks of the last set wait for each other,
  bool again = false;        // and before each step after it, and the flush
  std::vector<Members> sets = {{{0, 1, 2}}};
  std::array<int, kMostNames> set_of = {0, 0};  // by name
  int rare_name = -1, rare = 4;                 // this name is called in every so many steps only
  bool ends_standstills = false;            // rounds begin if all ranks wait for each other, maybe for a moment only
  std::optional<QuorumRule> promised = {};  // what rounds are held to, if not the rule
  // Faults.
  bool reports_late = true;     // Votes::Arrived is told
  bool reports_absence = true;  // of ranks that wait elsewhere
  bool flushes_at_once = true;  // all names before it waits for one
  bool clears_send = true;      // when the send buffer leaves

  const QuorumRule& Promised() const { return promised ? *promised : rule; }
  const Members& Of(int name) const { return sets[static_cast<std::size_t>(set_of[static_cast<std::size_t>(name)])]; }
  // Whether ranks may wait for something else than the rounds that they are asked about.
  bool elsewhere() const { return barrier >= 0 || sets.size() > 1; }
};

inline void Expect(bool holds, const char* what) {
  if (!holds) {
    throw Fault{what};
  }
}

// A round on its way through the ranks.
struct Round {
  int name = 0;
  bool closing = false, all_present = true;
  int begun = 0, flushing = 0, contributing = 0;
  uint32_t fresh = 0, absent = 0;  // sets of ranks
  int64_t sum = 0;
};

// When it has begun on all ranks: whether it was due.
inline void CheckRound(const Job& job, const Round& round, int64_t number) {
  const Members& members = job.Of(round.name);
  Expect(round.closing == (round.flushing == members.size()), "the ranks and the coordinator differ about the flush");
  int fresh = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    fresh += (round.fresh >> rank) & 1;
  }
  Expect(fresh > 0 || round.closing, "a round that nobody wanted");
  Expect(number > 0 || fresh == members.size(), "round 0 without all ranks");
  if (round.all_present && job.Promised().count > 0) {
    Expect(fresh >= job.Promised().count, "fewer fresh contributions than the quorum");
  } else if (round.all_present) {
    const int32_t index = Initiator(job.Promised().seed, number, members.size());
    const int initiator = members.ranks[static_cast<std::size_t>(index)];
    const bool initiated = ((round.fresh >> initiator) & 1) != 0;
    Expect(initiated || round.contributing == members.size(), "a round without its initiator");
  }
}

}  // namespace partial_model

#endif  // PACELINE_UNIT_PARTIAL_JOB_H
