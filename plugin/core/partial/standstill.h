// Detects that all ranks of a process set wait for each other in partial rounds.

#ifndef PACELINE_CORE_PARTIAL_STANDSTILL_H
#define PACELINE_CORE_PARTIAL_STANDSTILL_H

#include <cstdint>
#include <string>
#include <vector>

namespace paceline::core {

// Rounds that wait for a certain rank (a drawn initiator, a large quorum, max_lag) need ranks that call the same names
// in each step (votes.h). If a name is called in some steps only, rank 0 may wait for rank 1 under this name, while
// rank 1, a step behind, waits for rank 0 under another name: for ever.
//
// The sign of a standstill: every rank waits for something, and no message about partial rounds has come for kLimit_ns.
// Then all rounds that somebody called begin with the ranks that are there. Contributions of the other ranks go with
// later rounds, as those of late ranks do; nothing is lost. A rank that computes for longer than the limit after its
// calls may look as if it waited. So the limit is longer than pauses within a step; a mistake costs a round its quorum.
//
// Round 0 of a name is not begun: ranks that have never called do not know the tensor. It is as an allreduce that not
// all ranks call, which the stall inspector reports.
class Standstill {
 public:
  static constexpr int64_t kLimit_ns = 5'000'000'000;

  // A round of this name begins without these ranks.
  struct Name {
    std::string name;
    std::vector<int32_t> called, missing;
  };

  // Message for users about rounds that begin; `of_set` names the process set.
  static std::string Text(const std::vector<Name>& names, const std::string& of_set);

  // A message has come, or a round has begun.
  void Changed() { changed_ = true; }
  // Returns true if nothing has changed for the limit.
  bool Due(int64_t now_ns) {
    if (changed_) {
      changed_ = false;
      since_ns_ = now_ns;
    }
    return now_ns - since_ns_ >= kLimit_ns;
  }

 private:
  bool changed_ = true;
  int64_t since_ns_ = 0;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_PARTIAL_STANDSTILL_H
