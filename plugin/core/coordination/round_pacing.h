// When a rank enters the next coordination round, if no other rank calls it in before.

#ifndef PACELINE_CORE_COORDINATION_ROUND_PACING_H
#define PACELINE_CORE_COORDINATION_ROUND_PACING_H

#include <chrono>

namespace paceline::core {

// With rounds in every cycle, what is handed in waits for the end of a cycle, half of one on average, and what came
// within it travels together. Here it waits only where rounds would come closer than that: what came within a cycle
// after a round in which this rank had something travels together as before, what comes after a pause goes at once, and
// so does what somebody waits for.
//
// What has happened since the last round began, and when the next one is due:
//
//   state       due
//   kIdle       `idle` after the last round: so long may its background thread sleep
//   kHeld       kHold after what came last, which goes with others that are still to come
//   kGathering  a cycle after the last round that took something from this rank, or at once if that is over
//   kUrgent     at once
//
//   from        event      to
//   kIdle       Held       kHeld
//   kIdle       HandedIn   kGathering
//   kIdle       WaitedFor  kIdle: what is waited for was in a round before, and waits for other ranks
//   kHeld       Held       kHeld, for another kHold
//   kHeld       HandedIn   kGathering
//   kHeld       WaitedFor  kUrgent
//   kGathering  Held       kGathering
//   kGathering  HandedIn   kGathering: what it is gathered with sets the time
//   kGathering  WaitedFor  kUrgent
//   kUrgent     any        kUrgent
//   any         Entered    kIdle
//   any         TakenUp    kIdle
//
// The first round is due at once. A round that another rank calls begins at once, too, but for a rank that holds: what
// it could tell now would not be what the others wait for. One thread at a time.
class RoundPacing {
 public:
  using Clock = std::chrono::steady_clock;

  enum class State { kIdle, kHeld, kGathering, kUrgent };

  // So long one that holds waits for the next of what it holds, as an armed step does (docs/armed.md).
  static constexpr std::chrono::milliseconds kHold{10};

  // What holds from now on; `idle` is how long a rank may sleep at all.
  void Set(Clock::duration cycle, Clock::duration idle) {
    cycle_ = cycle;
    idle_ = idle;
  }

  // There is something to take up; all three return whether the next round is due sooner than before.
  bool HandedIn();
  // There is something that need not be taken up before others come.
  bool Held(Clock::time_point now);
  // A thread waits until all that it has handed in has been performed.
  bool WaitedFor();
  // A round begins now, and takes all that was handed in.
  void Entered(Clock::time_point now);
  // All that was handed in went without a round.
  void TakenUp() { state_ = State::kIdle; }

  State state() const { return state_; }
  Clock::time_point Due() const;
  // Whether a round that another rank calls waits for this one.
  bool Holds(Clock::time_point now) const { return state_ == State::kHeld && now < Due(); }

 private:
  State state_ = State::kIdle;
  Clock::duration cycle_{}, idle_{};
  Clock::time_point last_, last_own_;  // rounds, and those of them that took something
  Clock::time_point last_held_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_COORDINATION_ROUND_PACING_H
