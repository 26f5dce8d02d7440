#include <array>
#include <chrono>
#include <string>

#include "core/failure/liveness_check.h"
#include "doctest/doctest.h"
#include "events.h"

namespace {

using paceline::core::LivenessCheck;

constexpr std::chrono::milliseconds kLimit{100};

LivenessCheck::Clock::time_point At(int64_t ms) {
  return LivenessCheck::Clock::time_point(std::chrono::milliseconds(ms));
}

// "here3,10": rank 3 answers the last call at 10 ms. "look99": what has come of it at 99 ms, with the ranks that do not
// answer.
struct Machine : events::Machine {
  explicit Machine(bool rank_0) : roll(rank_0, kLimit) {
    On("call", [this](const std::vector<int64_t>& ms_and_ranks) {
      earlier = number;
      number = roll.Begin({ms_and_ranks.begin() + 1, ms_and_ranks.end()}, At(ms_and_ranks.at(0)));
    });
    On("here", [this](int32_t rank, int64_t ms) { roll.Here(rank, number, At(ms)); });
    On("here_before", [this](int32_t rank, int64_t ms) { roll.Here(rank, earlier, At(ms)); });
    On("all_here", [this] { roll.AllHere(number); });
    On("all_here_of_another", [this] { roll.AllHere(number + 1); });
    On("gone", [this](int32_t rank) { roll.Gone(rank); });
    On("look", [this](int64_t ms) { return Look(ms); });
    On("until", [this](int64_t ms) { return roll.until() == At(ms); });
    On("state", [this] { return std::array{"idle", "calling", "counting"}.at(static_cast<size_t>(roll.state())); });
  }

  std::string Look(int64_t ms) {
    const auto outcome = roll.Look(At(ms));
    if (outcome != LivenessCheck::Outcome::kMissing) {
      return outcome == LivenessCheck::Outcome::kAllHere ? "all" : "";
    }
    std::string text = "missing";
    for (const int32_t rank : roll.missing()) {
      text += "," + std::to_string(rank);
    }
    return text;
  }

  LivenessCheck roll;
  uint64_t number = 0, earlier = 0;
};

#define CALLED "look1000 call0,1,2,3 state:calling until100:yes here3,10 here3,20 here1,30 look99 "

constexpr events::Case kOfRank0[] = {
    // Answers count, also if this rank reads them late.
    {"all that it called answer", CALLED "here2,99 look500:all state:idle look1000"},
    {"the last one leaves", CALLED "gone2 look99:all state:idle look1000"},
    {"one does not answer", CALLED "look100:missing,2 state:idle look1000"},
    {"several do not answer", "call0,1,2,3 here2,1 look100:missing,1,3"},
    {"answers to an earlier call do not count",
     "call0,1,2 here1,1 look100:missing,2 call100,1,2 here_before2,110 here1,110 look199 look200:missing,2"},
    {"with nobody to call, all are here", "call0 look0:all"},
};

#define COUNTING "call0,0 here0,50 state:counting look200 "

constexpr events::Case kOfOthers[] = {
    {"rank 0 does not answer", "call0,0 look99 look100:missing,0"},
    {"rank 0 has left", "call0,0 gone0 look0:all"},
    {"all are here before rank 0 has answered itself: of an earlier call", "call0,0 all_here look100:missing,0"},
    {"rank 0 counts, and all are here", COUNTING "all_here_of_another look210 all_here look210:all"},
    {"rank 0 counts, and then stops itself", COUNTING "look349 look350:missing,0"},
    {"rank 0 counts, and then leaves", COUNTING "gone0 look210:all"},
};

TEST_CASE("rank 0 waits for all that it called, and for no longer") {
  for (const auto& [claim, script] : kOfRank0) {
    CAPTURE(claim);
    Machine(true).Play(script);
  }
}

TEST_CASE("another rank hears from rank 0 first, and then of all") {
  for (const auto& [claim, script] : kOfOthers) {
    CAPTURE(claim);
    Machine(false).Play(script);
  }
}

}  // namespace
