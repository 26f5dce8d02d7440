#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/partial/round_state.h"
#include "doctest/doctest.h"
#include "events.h"

using paceline::core::RoundState;

namespace {

// What leaves with a round: fresh, flushing, and +N contributions that are carried; or null.
std::string TextOf(const RoundState::Departure& left) {
  const std::string kinds = std::string(left.fresh ? "fresh" : "") + (left.flushing ? "flushing" : "");
  const std::string text = kinds + (left.carried > 0 ? "+" + std::to_string(left.carried) : "");
  return text.empty() ? "null" : text;
}

// The state of one name on one rank.
struct Machine : events::Machine {
  Machine() {
    On("call", [this] {
      const auto reply = state.Call();
      return std::array{"answered", "vote", "wait"}.at(static_cast<size_t>(reply.kind)) + std::to_string(reply.round);
    });
    On("flush", [this] { state.Flush(); });
    On("begin", [this] { return TextOf(state.Begin()); });
    On("end", [this] { return state.End(false); });
    On("close", [this] { return state.End(true); });
    On("restore", [this](int64_t pending, int64_t missed) { state.Restore(pending, missed); });
    On("fail", [this] { return state.Fail() ? "waited" : "idle"; });
    On("stale", [this](int64_t round) { return state.Stale(round); });
    On("waiting", [this] { return state.waiting(); });
    On("pending", [this] { return state.pending(); });
    On("missed", [this] { return state.missed(); });
    On("executed", [this] { return state.executed(); });
  }

  RoundState state;
};

// Round 0 takes all ranks' calls.
#define ROUND_0 "call:vote0 begin:fresh end:1 "
// A round that others made.
#define PASS " begin:null end:0 "

constexpr events::Case kCases[] = {
    {"a call in time votes, leaves with the round and is answered by it; its vote is stale from then on",
     "call:vote0 waiting:yes stale0:no begin:fresh pending:0 stale0:yes waiting:yes end:1 waiting:no"},
    {"late by one round: answered at once, and the next round takes both contributions",
     ROUND_0 PASS "call:answered2 pending:1 call:vote2 begin:fresh+1 end:1 pending:0 begin:null"},
    {"late by several rounds: answered with all of them, and a round of others takes the contribution",
     ROUND_0 PASS PASS PASS "missed:3 call:answered4 missed:0 begin:+1 end:0"},
    {"a call during a round waits for it without being in it",
     ROUND_0 "begin:null call:wait2 waiting:yes end:1 pending:1"},
    {"a call during a round is answered at once where others were missed before, without that round",
     ROUND_0 PASS "begin:null call:answered2 end:0 missed:1"},
    {"a vote is stale when its round took the call along, and when it is of another call",
     ROUND_0 "call:vote1 begin:fresh stale1:yes end:1 stale1:yes call:vote2 stale1:yes stale2:no"},
    {"rounds that overlap end in order, each with the call that it belongs to",
     ROUND_0 "call:vote1 begin:fresh begin:null end:1 call:wait3 begin:+1 end:1 end:0 missed:1 executed:4"},
    {"a flush outlasts the rounds of others and is answered with everything missed",
     ROUND_0 PASS "call:answered2 begin:+1 end:0 flush waiting:yes pending:0 begin:flushing end:0 waiting:yes "
                  "begin:flushing close:3 waiting:no missed:0 call:vote5"},
    {"a flush brings out what is in the send buffer",
     ROUND_0 PASS "call:answered2 pending:1 flush begin:flushing+1 close:1 pending:0"},
    {"failure tells whether somebody waits, and leaves a state as new",
     ROUND_0 "fail:idle call:vote0 begin:fresh fail:waited executed:0 pending:0 stale0:yes call:vote0 stale0:no"},
    {"an earlier run's results come with the first round, its send buffer leaves with it",
     "restore2,3 pending:2 call:vote0 begin:fresh+2 end:4 missed:0"},
    {"going back to an earlier time of a run answers the next call at once",
     ROUND_0 "restore1,2 missed:2 call:answered1 missed:0 pending:2"},
    {"a flush can be the first call of a run that goes on", "restore1,1 flush begin:flushing+1 close:2"},
};

}  // namespace

TEST_CASE("calls, rounds and flushes") { events::PlayAll<Machine>(kCases); }

TEST_CASE("calls and rounds are counted, and long lags are in the last bin") {
  Machine machine;
  machine.Play(ROUND_0 "begin:null call:wait2 end:1 begin:+1 end:0" PASS PASS "call:answered5");
  const auto& counters = machine.state.counters();
  CHECK(counters.rounds == 5);
  CHECK(counters.missed == 4);
  CHECK(counters.on_time == 1);
  CHECK(counters.late == 2);
  CHECK(counters.carried == 1);
  for (const size_t lag : {0, 1, 3}) {
    CHECK(counters.lags[lag] == 1);
  }
  machine.Play("begin:+1 end:0");
  for (int round = 0; round < 40; ++round) {
    machine.Play(PASS);
  }
  machine.Play("call:answered46");
  CHECK(counters.lags.back() == 1);
}
