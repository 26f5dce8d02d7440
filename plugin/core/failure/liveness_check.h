// Who is called, who has answered, and when it is clear who does not.

#ifndef PACELINE_CORE_FAILURE_LIVENESS_CHECK_H
#define PACELINE_CORE_FAILURE_LIVENESS_CHECK_H

#include <chrono>
#include <cstdint>
#include <set>

namespace paceline::core {

// A rank that waited in vain wants to know who is alive. Rank 0, which has a connection to every other rank, calls all
// of them. Any other rank calls rank 0, which answers at once, calls the others, and says so when all have answered;
// that one of them has not, everybody hears as news (peer_watch.h).
//
// One call at a time. Every call has a number that answers repeat: an answer to an earlier one says nothing of this.
class LivenessCheck {
 public:
  using Clock = std::chrono::steady_clock;

  // What is asked in this state, and what ends it:
  //
  //   from        event                                       to          outcome
  //   kIdle       Begin                                       kCalling
  //   kCalling    all called have answered or left, rank 0    kIdle       kAllHere
  //   kCalling    rank 0 has answered, another rank           kCounting
  //   kCalling    rank 0 has left, another rank               kIdle       kAllHere: nobody to ask
  //   kCalling    the limit                                   kIdle       kMissing: those that have not answered
  //   kCounting   rank 0 says that all are here, or leaves    kIdle       kAllHere
  //   kCounting   kCounts limits                              kIdle       kMissing: rank 0, which answered first
  enum class State { kIdle, kCalling, kCounting };
  enum class Outcome { kNone, kAllHere, kMissing };

  // Of its limit, what rank 0 may need to count: it may be in the middle of another call when it is asked.
  static constexpr int kCounts = 3;

  // `limit`: within which those called must answer.
  LivenessCheck(bool rank_0, std::chrono::milliseconds limit) : rank_0_(rank_0), limit_(limit) {}

  // Call these ranks; the number of the call. Only in kIdle.
  uint32_t Begin(const std::set<int32_t>& called, Clock::time_point now);
  // A rank has answered the call of this number.
  void Here(int32_t rank, uint32_t number, Clock::time_point now);
  // Rank 0 has said that all others are here.
  void AllHere(uint32_t number);
  // A rank has left, or died: it is not waited for.
  void Gone(int32_t rank);
  // What the call has come to by now; unless that is kNone, it is over.
  Outcome Look(Clock::time_point now);

  State state() const { return state_; }
  // When to look, if nothing happens before. Not in kIdle.
  Clock::time_point until() const { return until_; }
  // Of the last call.
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
