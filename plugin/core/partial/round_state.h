// Which round of a partial collective takes a rank's gradient along, and which results answer its call.

#ifndef PACELINE_CORE_PARTIAL_ROUND_STATE_H
#define PACELINE_CORE_PARTIAL_ROUND_STATE_H

#include <array>
#include <cstddef>
#include <cstdint>

namespace paceline::core {

// eager-SGD (Li et al., PPoPP 2020): a round reduces the send buffers of all ranks under one name, whether or not their
// training threads have come; what comes too late stays in the send buffer and adds up until the next round takes it.
// This is the state of one name on one rank. The rounds of a name have the same numbers on all ranks, and a rank's
// calls are not tied to them: a late call is answered with all results that it missed, and makes no round.
//
// `missed` are the rounds that were performed and that no call was answered with. The states of the call:
//
//   state     event                         next      what happens
//   idle      call, some missed             idle      late: answered at once with the missed results; before round 0,
//                                                     where every rank votes, as if nothing was missed
//   idle      call, a round is under way    late      that round left without the contribution; the call waits for it
//   idle      call                          voted     a vote for the next round is handed in
//   voted     begin                         fresh     the send buffer leaves, the call's contribution in it
//   fresh     end                           idle      the call is answered with this round's result
//   late      end                           idle      the same, but its contribution is still in the send buffer
//   idle      flush                         flushing  this rank makes no call until all ranks flush
//   flushing  end, not closing              flushing  the round is missed: it was for ranks that still make calls
//   flushing  end, closing                  idle      answered with everything missed and this round's result
//   idle      end                           idle      the round is missed
//   any       fail                          idle      as new; whoever waits is told
//
// Begin takes the send buffer in every state. Several rounds may be under way, they end in the order of their begins:
// a call that waits is always answered by the next end. One call at a time may wait. One thread at a time.
class RoundState {
 public:
  enum class Phase : uint8_t { kIdle, kVoted, kFresh, kLate, kFlushing };

  // What becomes of a call. One that does not vote is reported with Votes::Arrived(rank, round): the others may be
  // waiting for a sign of this rank, and without it two names can wait for each other (see votes.h).
  struct Reply {
    enum class Kind : uint8_t { kAnswered, kVote, kWait };
    Kind kind = Kind::kAnswered;
    int64_t round = 0;  // kVote: what the vote is for; otherwise: all rounds before this one have answered calls
  };

  // What leaves with a round: the contributions in the send buffer. None of either kind: the rank contributes zeros.
  struct Departure {
    bool fresh = false;     // that of the call that waits is in it
    bool flushing = false;  // this rank flushes
    int64_t carried = 0;    // so many of earlier calls
  };

  struct Counters {
    static constexpr std::size_t kLags = 16;

    int64_t rounds = 0;                 // performed
    int64_t on_time = 0, late = 0;      // calls
    int64_t missed = 0;                 // rounds that left without a fresh contribution, flushes aside
    int64_t carried = 0;                // contributions that left with a later round than their call asked for
    std::array<int64_t, kLags> lags{};  // calls, by the rounds that they were late; the last one: or more
  };

  // The training thread's contribution was added to the send buffer. Not to be called while a call waits.
  Reply Call();
  // The same without a contribution: waits for a round that all ranks enter flushing, which leaves all send buffers
  // empty and all ranks with the same rounds. Votes::Flush is to be told.
  void Flush();
  // Whether a vote for this round that is found in the queue has to be dropped: the round has taken the call along.
  bool Stale(int64_t round) const { return phase_ != Phase::kVoted || round != executed_; }

  // The next round begins: the send buffer leaves with it and is null from here on.
  Departure Begin();
  // The oldest round under way was performed. `closing`: all ranks were flushing when it began, which the sum of
  // `flushing` over the ranks says to each of them. If the call that waits is to be answered, the number of rounds
  // whose results answer it, this one included; otherwise 0, and the result is added to what was missed.
  int64_t End(bool closing);

  // Goes on with `pending` contributions in the send buffer and the results of `missed` rounds, of an earlier run or of
  // an earlier time of this one; what there was is given up. On all ranks, while no call waits and no round is under
  // way. Where no round was performed yet, the first one brings the rank's call these results in addition to its own.
  void Restore(int64_t pending, int64_t missed);

  // What this rank has under this name is given up, on all ranks alike. Whether a call waited.
  bool Fail();

  // Contributions in the send buffer.
  int64_t pending() const { return pending_; }
  bool waiting() const { return phase_ != Phase::kIdle; }
  Phase phase() const { return phase_; }
  int64_t begun() const { return begun_; }
  int64_t executed() const { return executed_; }
  int64_t missed() const { return executed_ - answered_; }
  const Counters& counters() const { return counters_; }

 private:
  void CountCall(int64_t lag);

  Phase phase_ = Phase::kIdle;
  // Rounds, answered_ <= executed_ <= begun_ (answered_ < 0: so many of an earlier run were missed): all before
  // answered_ have answered calls, all before executed_ were performed, all before begun_ have begun. A call votes only
  // when the three are equal.
  int64_t answered_ = 0, executed_ = 0, begun_ = 0;
  int64_t pending_ = 0;
  Counters counters_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_PARTIAL_ROUND_STATE_H
