// Liveness check: which ranks were called, which have answered, and which ranks miss the limit.

#ifndef PACELINE_CORE_FAILURE_LIVENESS_CHECK_H
#define PACELINE_CORE_FAILURE_LIVENESS_CHECK_H

#include <chrono>
#include <cstdint>
#include <set>

namespace paceline::core {

// A rank starts a check after a timeout. Rank 0, which has a connection to every other rank, calls all of them. Any
// other rank calls rank 0. Rank 0 answers at once, calls the other ranks, and reports when all have answered. If a rank
// has not answered, all ranks are notified (peer_watch.h).
//
// One call at a time. Each call has a number, which answers repeat: an answer to an earlier call is ignored.
class LivenessCheck {
 public:
  using Clock = std::chrono::steady_clock;

  // States and events that end them:
  //
  //   from        event                                       to          outcome
  //   kIdle       Begin                                       kCalling
  //   kCalling    all called have answered or left, rank 0    kIdle       kAllHere
  //   kCalling    rank 0 has answered, another rank           kCounting
  //   kCalling    rank 0 has left, another rank               kIdle       kAllHere: nobody to ask
  //   kCalling    the limit                                   kIdle       kMissing: ranks that have not answered
  //   kCounting   rank 0 says that all are here, or leaves    kIdle       kAllHere
  //   kCounting   kCounts limits                              kIdle       kMissing: rank 0, which answered first
  enum class State { kIdle, kCalling, kCounting };
  enum class Outcome { kNone, kAllHere, kMissing };

  // Limits that rank 0 may need for its check: it may still be in another check when it is called.
  static constexpr int kCounts = 3;

  // `limit`: time within which called ranks must answer.
  LivenessCheck(bool rank_0, std::chrono::milliseconds limit) : rank_0_(rank_0), limit_(limit) {}

  // Begins a call of these ranks. Returns the number of the call. Only in kIdle.
  uint32_t Begin(const std::set<int32_t>& called, Clock::time_point now);
  // A rank has answered the call of this number.
  void Here(int32_t rank, uint32_t number, Clock::time_point now);
  // Rank 0 has reported that all other ranks answered.
  void AllHere(uint32_t number);
  // A rank has left or died: the check does not wait for it.
  void Gone(int32_t rank);
  // Outcome of the call by now. The call has ended unless the outcome is kNone.
  Outcome Look(Clock::time_point now);

  State state() const { return state_; }
  // Time of the next Look, if no event comes before. Not in kIdle.
  Clock::time_point until() const { return until_; }
  // Ranks missing in the last call.
  const std::set<int32_t>& missing() const { return missing_; }

 private:
  const bool rank_0_;
  const std::chrono::milliseconds limit_;
  State state_ = State::kIdle;
  bool all_here_ = false;
  uint32_t number_ = 0;
  Clock::time_point until_;
  std::set<int32_t> missing_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_FAILURE_LIVENESS_CHECK_H
