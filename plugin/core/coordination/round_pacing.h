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
//   kIdle       `idle` after ranks have last met: so long may its background thread sleep
//   kExpecting  the same, or kHold after another rank has called: a step has just gone without a round, and the next
//               one is about to begin as that did
//   kHeld       kRest after what came last, or kHold after that and after another rank has called, whichever of the
//               two is later: what came goes with others that are still to come, or never do
//   kGathering  a cycle after the last round that took something from this rank, or at once if that is over
//   kUrgent     at once
//
//   from        event      to
//   kIdle       Held       kHeld
//   kIdle       Submitted  kGathering
//   kIdle       WaitedFor  kIdle: what is waited for was in a round before, and waits for other ranks
//   kExpecting  WaitedFor  kExpecting
//   kExpecting  others     as kIdle; another rank that has called is remembered
//   kHeld       Held       kHeld
//   kHeld       Submitted  kGathering
//   kHeld       WaitedFor  kUrgent
//   kGathering  Held       kGathering
//   kGathering  Submitted  kGathering: what it is gathered with sets the time
//   kGathering  WaitedFor  kUrgent
//   kUrgent     any        kUrgent
//   any         Entered    kIdle
//   any         TakenUp    kExpecting
//
// The first round is due at once. A round that another rank calls begins at once, too, but for a rank that holds or
// expects: what it could tell now would not be what the others wait for, and they would need another round. One thread
// at a time.
class RoundPacing {
 public:
  using Clock = std::chrono::steady_clock;

  enum class State { kIdle, kExpecting, kHeld, kGathering, kUrgent };

  // So long one that holds lets others wait for the next of what it holds, as an armed step does
  // (docs/methods/armed.md).
  static constexpr std::chrono::milliseconds kHold{10};
  // So long it waits by itself. How long what is missing may take is looked at in rounds.
  static constexpr std::chrono::milliseconds kRest{100};

  // What holds from now on; `idle` is how long a rank may sleep at all.
  void Set(Clock::duration cycle, Clock::duration idle) {
    cycle_ = cycle;
    idle_ = idle;
  }

  // There is something to take up. Returns whether the next round is due sooner than before.
  bool Submitted();
  // A thread waits until all that it has handed in has been performed. Returns the same.
  bool WaitedFor();
  // There is something that need not be taken up before others come. Returns whether the next round is due sooner.
  bool Held(Clock::time_point now);
  // A round begins now, and takes all that was handed in.
  void Entered(Clock::time_point now);
  // All that was handed in went without a round, and all ranks were there until now.
  void TakenUp(Clock::time_point now);
  // Another rank calls a round: whether this one comes now.
  bool Called(Clock::time_point now);

  State state() const { return state_; }
  Clock::time_point Due() const;

 private:
  State state_ = State::kIdle;
  Clock::duration cycle_{}, idle_{};
  Clock::time_point last_met_, last_own_;  // in a round or without; and rounds that took something
  Clock::time_point last_held_;
  Clock::time_point called_ = Clock::time_point::max();  // first, while it expects or holds
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_COORDINATION_ROUND_PACING_H
