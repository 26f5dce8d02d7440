// Time at which a rank enters the next coordination round, unless another rank calls a round before.

#ifndef PACELINE_CORE_COORDINATION_ROUND_PACING_H
#define PACELINE_CORE_COORDINATION_ROUND_PACING_H

#include <chrono>

namespace paceline::core {

// If every cycle has a round, a submitted tensor waits for the end of the cycle: half a cycle on average. All tensors
// of one cycle share a round. This class limits the wait to the tensors that need it:
//
// - Tensors submitted within a cycle after a round that took tensors of this rank share the next round, as before.
// - A tensor submitted after a pause is negotiated at once, and so is a tensor that a thread waits for.
//
// States, by what has happened since the last round began, and the time at which the next round is due:
//
//   state       due
//   kIdle       `idle` after the last meeting of the ranks: the longest sleep of the background thread
//   kExpecting  as kIdle, or kHold after the call of another rank: a step has just ended without a round, and the next
//               step is about to begin in the same way
//   kHeld       kRest after the last held tensor; if another rank has called, kHold after the later one of the call and
//               the last held tensor: held tensors wait for other tensors, which may never be submitted
//   kGathering  a cycle after the last round that took tensors of this rank, or at once if that time has passed
//   kUrgent     at once
//
//   from        event      to
//   kIdle       Held       kHeld
//   kIdle       Submitted  kGathering
//   kIdle       WaitedFor  kIdle: the awaited tensor was in an earlier round, and waits for other ranks
//   kExpecting  WaitedFor  kExpecting
//   kExpecting  others     as kIdle; the call of another rank is kept
//   kHeld       Held       kHeld
//   kHeld       Submitted  kGathering
//   kHeld       WaitedFor  kUrgent
//   kGathering  Held       kGathering
//   kGathering  Submitted  kGathering: the tensors gathered before set the time
//   kGathering  WaitedFor  kUrgent
//   kUrgent     any        kUrgent
//   any         Entered    kIdle
//   any         TakenUp    kExpecting
//
// The first round is due at once. A round called by another rank begins at once, too, except in kHeld and kExpecting:
// the tensors that the other ranks wait for are not submitted yet, so a round now would need another one. One thread at
// a time.
class RoundPacing {
 public:
  using Clock = std::chrono::steady_clock;

  enum class State { kIdle, kExpecting, kHeld, kGathering, kUrgent };

  // Longest wait of other ranks for the next held tensor of this rank, as in an armed step (docs/methods/armed.md).
  static constexpr std::chrono::milliseconds kHold{10};
  // Longest wait of a held tensor without a call. Timeouts of missing tensors are checked in rounds.
  static constexpr std::chrono::milliseconds kRest{100};

  // Sets the length of a cycle and the longest sleep of a rank.
  void Set(Clock::duration cycle, Clock::duration idle) {
    cycle_ = cycle;
    idle_ = idle;
  }

  // A tensor was submitted that needs a round. Returns true if the next round is now due sooner.
  bool Submitted();
  // A thread waits until all of its submitted tensors are reduced. Returns true if the next round is now due sooner.
  bool WaitedFor();
  // A tensor was submitted that need not be negotiated before other tensors follow. Returns true if the next round is
  // now due sooner.
  bool Held(Clock::time_point now);
  // A round begins now, and takes all submitted tensors.
  void Entered(Clock::time_point now);
  // All submitted tensors were reduced without a round; all ranks took part until now.
  void TakenUp(Clock::time_point now);
  // Another rank calls a round. Returns true if this rank enters it now.
  bool Called(Clock::time_point now);

  State state() const { return state_; }
  Clock::time_point Due() const;

 private:
  State state_ = State::kIdle;
  Clock::duration cycle_{}, idle_{};
  Clock::time_point last_met_;  // last meeting of all ranks, in a round or without one
  Clock::time_point last_own_;  // last round that took tensors of this rank
  Clock::time_point last_held_;
  Clock::time_point called_ = Clock::time_point::max();  // first call in kExpecting or kHeld
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_COORDINATION_ROUND_PACING_H
