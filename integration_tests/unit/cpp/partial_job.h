// What a modelled job does under partial collectives, and what it may expect of each round.

#ifndef PACELINE_TESTS_PARTIAL_JOB_H
#define PACELINE_TESTS_PARTIAL_JOB_H

#include <cstdint>
#include <optional>

#include "core/votes.h"

namespace partial_model {

using paceline::core::Initiator;
using paceline::core::QuorumRule;

constexpr int kRanks = 3;
constexpr int kMostNames = 2;

// What the job does, and what may be wrong with it.
struct Job {
  QuorumRule rule;
  int names = 2, calls = 3;  // calls of each rank under each name
  bool blocking = true;      // a call waits for the one before it; otherwise a step's calls wait together
  int barrier = -1;          // before this step all ranks wait for each other
  std::optional<QuorumRule> promised = {};  // what rounds are held to, if not the rule
  // Faults.
  bool reports_late = true;     // Votes::Arrived is told
  bool reports_absence = true;  // at the barrier
  bool flushes_at_once = true;  // all names before it waits for one
  bool clears_send = true;      // when the send buffer leaves

  const QuorumRule& Promised() const { return promised ? *promised : rule; }
};

// A fault found by the model, in words.
struct Fault {
  std::string what;
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
  uint32_t fresh = 0;  // set of ranks
  int64_t sum = 0;
};

// When it has begun on all ranks: whether it was due.
inline void CheckRound(const Job& job, const Round& round, int64_t number) {
  Expect(round.closing == (round.flushing == kRanks), "the ranks and the coordinator differ about the flush");
  int fresh = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    fresh += (round.fresh >> rank) & 1;
  }
  Expect(fresh > 0 || round.closing, "a round that nobody wanted");
  Expect(number > 0 || fresh == kRanks, "round 0 without all ranks");
  if (round.all_present && job.Promised().count > 0) {
    Expect(fresh >= job.Promised().count, "fewer fresh contributions than the quorum");
  } else if (round.all_present) {
    const bool initiated = ((round.fresh >> Initiator(job.Promised().seed, number, kRanks)) & 1) != 0;
    Expect(initiated || round.contributing == kRanks, "a round without its initiator");
  }
}

}  // namespace partial_model

#endif  // PACELINE_TESTS_PARTIAL_JOB_H
