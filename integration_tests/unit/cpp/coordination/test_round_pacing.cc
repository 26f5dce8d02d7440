#include <array>
#include <chrono>
#include <string>

#include "core/coordination/round_pacing.h"
#include "doctest/doctest.h"
#include "events.h"

namespace {

using paceline::core::RoundPacing;
using std::chrono::milliseconds;

// When a script begins, after a first round that took nothing.
const RoundPacing::Clock::time_point kStart{std::chrono::hours(1)};

// Times of events are milliseconds after kStart. "sooner": the next round is due sooner than before. "due" is that
// time, or "now" if it is not later than the last event.
struct Machine : events::Machine {
  Machine() {
    pacing.Set(milliseconds(20), milliseconds(1000));
    CHECK(pacing.Due() <= kStart);
    pacing.Entered(kStart);
    On("set", [this](int64_t cycle, int64_t idle) { pacing.Set(milliseconds(cycle), milliseconds(idle)); });
    On("in", [this] { return Sooner(pacing.Submitted()); });
    On("wait", [this] { return Sooner(pacing.WaitedFor()); });
    On("held", [this](int64_t ms) { return Sooner(pacing.Held(At(ms))); });
    On("called", [this](int64_t ms) { return pacing.Called(At(ms)); });
    On("round", [this](int64_t ms) { pacing.Entered(At(ms)); });
    On("taken", [this](int64_t ms) { pacing.TakenUp(At(ms)); });
    On("due",
       [this] { return pacing.Due() <= now ? "now" : std::to_string((pacing.Due() - kStart) / milliseconds(1)); });
    On("state", [this] {
      const std::array names = {"idle", "expecting", "held", "gathering", "urgent"};
      return names.at(static_cast<size_t>(pacing.state()));
    });
  }

  static std::string Sooner(bool sooner) { return sooner ? "sooner" : ""; }
  RoundPacing::Clock::time_point At(int64_t ms) { return now = kStart + milliseconds(ms); }

  RoundPacing pacing;
  RoundPacing::Clock::time_point now = kStart;
};

static_assert(RoundPacing::kHold == milliseconds(10) && RoundPacing::kRest == milliseconds(100));

// A round at 10 ms that took something.
#define TOOK_AT_10 "in:sooner round10 "
// By itself a rank that holds is in no hurry; for what comes behind it nobody need be woken.
#define HELD_AT_160 "called100:yes held100:sooner state:held due:200 held160 due:260 "
#define EXPECTING_A_STEP "in:sooner taken0 called100:no called103:no due:110 wait "

constexpr events::Case kCases[] = {
    {"an idle rank comes at the heartbeat, also while it waits for other ranks",
     "state:idle due:1000 wait due:1000 round1000 due:2000"},
    {"what comes after a pause goes at once, and nobody need be woken again", "in:sooner state:gathering due:now in"},
    {"what comes within a cycle after that goes together",
     TOOK_AT_10 "in:sooner due:30 in due:30 round30 in:sooner due:50"},
    {"a thread that waits makes that urgent",
     TOOK_AT_10 "in:sooner wait:sooner state:urgent due:now wait in state:urgent due:now"},
    {"a round that another rank calls within the cycle takes what this rank has",
     TOOK_AT_10 "in:sooner round13 state:idle in:sooner due:33"},
    {"a round that another rank calls within the cycle and that takes nothing does not begin a cycle",
     TOOK_AT_10 "round13 in:sooner due:30"},
    {"what goes with others waits for them: the last one comes, and what comes behind it sets no time",
     HELD_AT_160 "in:sooner called100:yes due:now held100 state:gathering due:now"},
    {"a rank that holds is urgent when a thread waits", HELD_AT_160 "wait:sooner state:urgent held100 due:now"},
    {"a rank that holds lets a called round wait; the first call counts",
     HELD_AT_160 "called190:no due:200 called199:no due:200 called200:yes"},
    {"what comes after the call sets the time, unless it is the last one",
     HELD_AT_160 "called190:no held193 due:203 in:sooner called193:yes"},
    {"where the last one never comes, the called round takes what there is",
     HELD_AT_160 "called190:no held193 due:203 round203 state:idle called203:yes in:sooner due:223"},
    {"after a called round, what is held next rests again: the call has been followed",
     HELD_AT_160 "called190:no held193 due:203 round203 held203:sooner due:303"},
    {"what was held went without a round", HELD_AT_160 "taken190 due:1190"},
    {"a rank that may not sleep long comes soon, and never later with something than without",
     "set50,5 due:5 in:sooner round0 in due:5"},
    {"without a cycle everything goes at once",
     "set0,1000 in:sooner due:now round0 in:sooner due:now round1 in:sooner due:now"},
    {"a rank whose next step is about to begin lets a round wait that another one calls: it begins",
     EXPECTING_A_STEP "in:sooner called100:yes due:now called103:yes"},
    {"the expected step begins with what goes with others", EXPECTING_A_STEP "held109 due:119 called110:no"},
    {"the expected step does not begin: the called round takes nothing",
     EXPECTING_A_STEP "called110:yes round110 state:idle called111:yes in:sooner called110:yes due:now"},
    {"the expected step goes without a round: the next one is expected",
     EXPECTING_A_STEP "in:sooner taken100 due:1100 called150:no due:160"},
    {"a rank that expects a step comes as soon as an idle one", "taken0 called999:no due:1000 called1000:yes"},
    {"a step without a round, in which all ranks were there, counts as one: no heartbeat follows it",
     "in:sooner round0 in:sooner taken3000 due:4000"},
    {"what went without a round needs none, and what comes after that does",
     "in:sooner wait:sooner taken0 state:expecting due:1000 in:sooner due:now"},
};

TEST_CASE("when the next round is due") { events::PlayAll<Machine>(kCases); }

TEST_CASE("however much is held, a rank comes as soon as an idle one") {
  Machine machine;
  for (int64_t ms = 0; ms < 1000; ms += 5) {
    machine.pacing.Held(machine.At(ms));
  }
  machine.Play("due:1000 called1000:yes");
}

}  // namespace
