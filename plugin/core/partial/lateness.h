// Lateness of ranks in partial rounds, as the coordinator of a process set counts it over all names.

#ifndef PACELINE_CORE_PARTIAL_LATENESS_H
#define PACELINE_CORE_PARTIAL_LATENESS_H

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace paceline::core {

// The coordinator's thread counts; any thread reads totals.
class Lateness {
 public:
  struct Rank {
    int64_t calls = 0;    // contributions
    int64_t missed = 0;   // rounds that were sent without one
    int64_t late = 0;     // contributions after the round that they were for
    int64_t late_ns = 0;  // sum of their delays after that round was ready
  };
  struct Totals {
    int64_t rounds = 0;
    std::vector<Rank> ranks;
  };
  // A rank that was late in most of its last calls, by a tenth of a step and more; per name.
  struct Straggler {
    int32_t rank = 0;
    int64_t calls = 0, late = 0, mean_late_ns = 0, step_ns = 0;
  };

  explicit Lateness(int32_t size) : reported_(static_cast<std::size_t>(size), false) {
    totals_.ranks.resize(static_cast<std::size_t>(size));
    before_ = totals_;
  }

  // A round was sent without these ranks, by rank.
  void Sent(const std::vector<bool>& missed);
  void Called(int32_t rank);
  void CameLate(int32_t rank, int64_t late_ns);
  // Every kSteps rounds of each of so many names: the worst straggler, each rank once. A rank that is always the last
  // of equals is none, though a quorum goes without it.
  std::optional<Straggler> Look(int64_t names, int64_t now_ns);
  Totals totals() const;

  static constexpr int64_t kSteps = 50;

 private:
  mutable std::mutex mutex_;  // protects all
  Totals totals_, before_;    // before_: at the last look
  int64_t looked_ns_ = 0;
  std::vector<bool> reported_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_PARTIAL_LATENESS_H
