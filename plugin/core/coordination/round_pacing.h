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
//   kGathering  a cycle after the last round that took something from this rank, or at once if that is over
//   kUrgent     at once
//
//   from        event      to
//   kIdle       HandedIn   kGathering
//   kIdle       WaitedFor  kIdle: what is waited for was in a round before, and waits for other ranks
//   kGathering  HandedIn   kGathering: what it is gathered with sets the time
//   kGathering  WaitedFor  kUrgent
//   kUrgent     any        kUrgent
//   any         Entered    kIdle
//   any         TakenUp    kIdle
//
// The first round is due at once. One thread at a time.
class RoundPacing {
 public:
  using Clock = std::chrono::steady_clock;

  enum class State { kIdle, kGathering, kUrgent };

  // What holds from now on; `idle` is how long a rank may sleep at all.
  void Set(Clock::duration cycle, Clock::duration idle) {
    cycle_ = cycle;
    idle_ = idle;
  }

  // There is something to take up. Both return whether the next round is due sooner than before.
  bool HandedIn();
  // A thread waits until all that it has handed in has been performed.
  bool WaitedFor();
  // A round begins now, and takes all that was handed in.
  void Entered(Clock::time_point now);
  // All that was handed in went without a round.
  void TakenUp() { state_ = State::kIdle; }

  State state() const { return state_; }
  Clock::time_point Due() const;

 private:
  State state_ = State::kIdle;
  Clock::duration cycle_{}, idle_{};
  Clock::time_point last_, last_own_;  // rounds, and those of them that took something
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_COORDINATION_ROUND_PACING_H
