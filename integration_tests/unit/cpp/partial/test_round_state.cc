#include <cstdint>

#include "core/partial/round_state.h"
#include "doctest/doctest.h"

using paceline::core::RoundState;
using Kind = RoundState::Reply::Kind;
using Phase = RoundState::Phase;

namespace {

// Round 0, which takes all ranks' calls.
RoundState AfterFirstRound() {
  RoundState state;
  CHECK(state.Call().kind == Kind::kVote);
  CHECK(state.Begin().fresh);
  CHECK(state.End(false) == 1);
  return state;
}

// A round that others made.
void Pass(RoundState& state) {
  state.Begin();
  CHECK(state.End(false) == 0);
}

}  // namespace

TEST_CASE("a call in time votes, leaves with the round and is answered by it") {
  RoundState state;
  const auto reply = state.Call();
  CHECK(reply.kind == Kind::kVote);
  CHECK(reply.round == 0);
  CHECK(state.phase() == Phase::kVoted);
  CHECK_FALSE(state.Stale(0));
  const auto departure = state.Begin();
  CHECK(departure.fresh);
  CHECK(departure.carried == 0);
  CHECK(state.pending() == 0);
  CHECK(state.Stale(0));  // the vote, if it is still in the queue
  CHECK(state.waiting());
  CHECK(state.End(false) == 1);
  CHECK_FALSE(state.waiting());
  CHECK(state.counters().on_time == 1);
  CHECK(state.counters().lags[0] == 1);
}

TEST_CASE("late by one round: answered at once, and the next round takes both contributions") {
  RoundState state = AfterFirstRound();
  Pass(state);
  const auto late = state.Call();
  CHECK(late.kind == Kind::kAnswered);
  CHECK(late.round == 2);
  CHECK(state.pending() == 1);
  CHECK(state.Call().kind == Kind::kVote);
  const auto departure = state.Begin();
  CHECK(departure.fresh);
  CHECK(departure.carried == 1);
  CHECK(state.End(false) == 1);
  CHECK(state.pending() == 0);
  CHECK_FALSE(state.Begin().fresh);  // null again
}

TEST_CASE("late by several rounds: answered with all of them, and a round of others takes the contribution") {
  RoundState state = AfterFirstRound();
  for (int round = 0; round < 3; ++round) {
    Pass(state);
  }
  CHECK(state.missed() == 3);
  CHECK(state.Call().kind == Kind::kAnswered);
  CHECK(state.missed() == 0);
  const auto departure = state.Begin();
  CHECK_FALSE(departure.fresh);
  CHECK(departure.carried == 1);
  CHECK(state.End(false) == 0);
  const auto& counters = state.counters();
  CHECK(counters.rounds == 5);
  CHECK(counters.missed == 4);
  CHECK(counters.on_time == 1);
  CHECK(counters.late == 1);
  CHECK(counters.carried == 1);
  CHECK(counters.lags[3] == 1);
}

TEST_CASE("a call during a round waits for it without being in it") {
  RoundState state = AfterFirstRound();
  CHECK_FALSE(state.Begin().fresh);
  const auto reply = state.Call();
  CHECK(reply.kind == Kind::kWait);
  CHECK(reply.round == 2);
  CHECK(state.phase() == Phase::kLate);
  CHECK(state.End(false) == 1);
  CHECK(state.pending() == 1);
  CHECK(state.counters().lags[1] == 1);
}

TEST_CASE("a call during a round is answered at once where others were missed before") {
  RoundState state = AfterFirstRound();
  Pass(state);
  state.Begin();
  const auto reply = state.Call();
  CHECK(reply.kind == Kind::kAnswered);
  CHECK(reply.round == 2);  // round 2 itself it has not seen
  CHECK(state.End(false) == 0);
  CHECK(state.missed() == 1);
}

TEST_CASE("a vote is stale when its round took the call along, and when it is of another call") {
  RoundState state = AfterFirstRound();
  CHECK(state.Call().round == 1);
  state.Begin();
  CHECK(state.Stale(1));
  state.End(false);
  CHECK(state.Stale(1));
  CHECK(state.Call().round == 2);
  CHECK(state.Stale(1));
  CHECK_FALSE(state.Stale(2));
}

TEST_CASE("rounds that overlap end in order, each with the call that it belongs to") {
  RoundState state = AfterFirstRound();
  state.Call();
  CHECK(state.Begin().fresh);        // round 1
  CHECK_FALSE(state.Begin().fresh);  // round 2, made by others
  CHECK(state.End(false) == 1);
  CHECK(state.Call().kind == Kind::kWait);  // for round 2
  CHECK(state.Begin().carried == 1);        // round 3
  CHECK(state.End(false) == 1);
  CHECK(state.End(false) == 0);
  CHECK(state.missed() == 1);
  CHECK(state.executed() == 4);
}

TEST_CASE("a flush outlasts the rounds of others and is answered with everything missed") {
  RoundState state = AfterFirstRound();
  Pass(state);
  state.Call();  // late; its contribution stays
  Pass(state);
  state.Flush();
  CHECK(state.waiting());
  CHECK(state.pending() == 0);
  const auto others = state.Begin();
  CHECK(others.flushing);
  CHECK(state.End(false) == 0);
  CHECK(state.waiting());
  CHECK(state.Begin().flushing);
  CHECK(state.End(true) == 3);
  CHECK_FALSE(state.waiting());
  CHECK(state.missed() == 0);
  CHECK(state.Call().kind == Kind::kVote);
}

TEST_CASE("a flush brings out what is in the send buffer") {
  RoundState state = AfterFirstRound();
  Pass(state);
  state.Call();
  CHECK(state.pending() == 1);
  state.Flush();
  const auto departure = state.Begin();
  CHECK_FALSE(departure.fresh);
  CHECK(departure.flushing);
  CHECK(departure.carried == 1);
  CHECK(state.End(true) == 1);
  CHECK(state.pending() == 0);
}

TEST_CASE("failure tells whether somebody waits, and leaves a state as new") {
  RoundState state = AfterFirstRound();
  CHECK_FALSE(state.Fail());
  state.Call();
  state.Begin();
  CHECK(state.Fail());
  CHECK(state.executed() == 0);
  CHECK(state.pending() == 0);
  CHECK(state.Stale(0));  // of a call before
  CHECK(state.Call().round == 0);
  CHECK_FALSE(state.Stale(0));
}

TEST_CASE("long lags are in the last bin") {
  RoundState state = AfterFirstRound();
  for (int round = 0; round < 40; ++round) {
    Pass(state);
  }
  CHECK(state.Call().kind == Kind::kAnswered);
  CHECK(state.counters().lags.back() == 1);
}

TEST_CASE("an earlier run's results come with the first round, its send buffer leaves with it") {
  RoundState state;
  state.Restore(2, 3);
  CHECK(state.pending() == 2);
  const auto reply = state.Call();
  CHECK(reply.kind == RoundState::Reply::Kind::kVote);
  CHECK(reply.round == 0);
  const auto departure = state.Begin();
  CHECK(departure.fresh);
  CHECK(departure.carried == 2);
  CHECK(state.End(false) == 4);
  CHECK(state.missed() == 0);
}

TEST_CASE("going back to an earlier time of a run answers the next call at once") {
  RoundState state = AfterFirstRound();
  state.Restore(1, 2);
  CHECK(state.missed() == 2);
  CHECK(state.Call().kind == Kind::kAnswered);
  CHECK(state.missed() == 0);
  CHECK(state.pending() == 2);
}

TEST_CASE("a flush can be the first call of a run that goes on") {
  RoundState state;
  state.Restore(1, 1);
  state.Flush();
  CHECK(state.Begin().carried == 1);
  CHECK(state.End(true) == 2);
}
