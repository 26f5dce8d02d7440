#include <string>
#include <vector>

#include "core/partial/round_coordinator.h"
#include "doctest/doctest.h"

using paceline::core::MergeGroup;
using paceline::core::QuorumRule;
using paceline::core::RoundCoordinator;

using Names = std::vector<std::string>;

namespace {

constexpr int32_t kRanks = 3;

const MergeGroup* Alone(const std::string&) { return nullptr; }

// After round 0 of each of these names, which waits for all ranks.
RoundCoordinator AfterFirstRound(const Names& names, QuorumRule rule) {
  RoundCoordinator rounds(kRanks);
  for (const auto& name : names) {
    rounds.Begin(name, rule);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      CHECK(rounds.Ready(Alone, 1).empty());
      rounds.Vote(name, rank);
    }
    CHECK(rounds.Ready(Alone, 1) == Names{name});
    rounds.Sent(name);
  }
  return rounds;
}

}  // namespace

TEST_CASE("a round is ready once, with its quorum, and the next one counts from the beginning") {
  auto rounds = AfterFirstRound({"x"}, QuorumRule::Majority(kRanks));
  rounds.Vote("x", 2);
  CHECK(rounds.Ready(Alone, 2).empty());
  rounds.Vote("x", 0);
  CHECK(rounds.Ready(Alone, 3) == Names{"x"});
  CHECK(rounds.Ready(Alone, 4).empty());
  rounds.Sent("x");
  CHECK(rounds.Ready(Alone, 5).empty());
  rounds.Vote("x", 1);
  CHECK(rounds.Ready(Alone, 6).empty());
}

TEST_CASE("a rank that waits under one name and was late under another has called there") {
  auto rounds = AfterFirstRound({"x", "y"}, QuorumRule{kRanks, 0, 0});
  rounds.Vote("x", 0);
  rounds.Vote("x", 1);
  rounds.Arrived("x", 2, 1);
  CHECK(rounds.Ready(Alone, 2).empty());
  rounds.Vote("y", 2);
  CHECK(rounds.Ready(Alone, 3) == Names{"x"});
  // Answered in y, it may call x again.
  rounds.Sent("x");
  rounds.Vote("y", 0);
  rounds.Vote("y", 1);
  CHECK(rounds.Ready(Alone, 4) == Names{"y"});
  rounds.Sent("y");
  rounds.Vote("x", 0);
  rounds.Vote("x", 1);
  rounds.Arrived("x", 2, 2);
  CHECK(rounds.Ready(Alone, 5).empty());
}

TEST_CASE("no round waits for a rank that something else holds up, until it is back") {
  auto rounds = AfterFirstRound({"x"}, QuorumRule{kRanks, 0, 0});
  rounds.Vote("x", 0);
  rounds.Vote("x", 1);
  CHECK(rounds.Ready(Alone, 2).empty());
  rounds.SetAbsent(2, true);
  CHECK(rounds.Ready(Alone, 3) == Names{"x"});
  rounds.Sent("x");
  rounds.SetAbsent(2, false);
  rounds.Vote("x", 0);
  rounds.Vote("x", 1);
  CHECK(rounds.Ready(Alone, 4).empty());
}

TEST_CASE("a name that its group has waited for without a call is not waited for before its next call") {
  const MergeGroup group{{"x", "y"}, 100};
  const auto together = [&](const std::string&) { return &group; };
  auto rounds = AfterFirstRound({"x", "y"}, QuorumRule::Solo());
  rounds.Vote("x", 0);
  CHECK(rounds.Ready(together, 1000).empty());
  CHECK(rounds.waiting());
  CHECK(rounds.Ready(together, 1100) == Names{"x"});
  rounds.Sent("x");
  for (int64_t now_ns = 2000; now_ns < 5000; now_ns += 1000) {
    rounds.Vote("x", 1);
    CHECK(rounds.Ready(together, now_ns) == Names{"x"});
    rounds.Sent("x");
  }
  // Its layer is thawed.
  rounds.Vote("y", 2);
  CHECK(rounds.Ready(together, 6000).empty());
  rounds.Vote("x", 2);
  CHECK(rounds.Ready(together, 6010) == Names{"y", "x"});
  rounds.Sent("x");
  rounds.Sent("y");
  rounds.Vote("x", 2);
  CHECK(rounds.Ready(together, 7000).empty());
}

TEST_CASE("names of a group wait for each other, for no longer than its patience") {
  const MergeGroup group{{"x", "y"}, 100};
  const auto together = [&](const std::string& name) { return name == "z" ? nullptr : &group; };
  auto rounds = AfterFirstRound({"x", "y", "z"}, QuorumRule::Solo());
  rounds.Vote("x", 0);
  rounds.Vote("z", 0);
  CHECK(rounds.Ready(together, 1000) == Names{"z"});
  CHECK(rounds.waiting());
  rounds.Sent("z");
  rounds.Vote("y", 1);
  CHECK(rounds.Ready(together, 1050) == Names{"x", "y"});
  CHECK_FALSE(rounds.waiting());
  rounds.Sent("x");
  rounds.Sent("y");
  rounds.Vote("y", 2);
  CHECK(rounds.Ready(together, 2000).empty());
  CHECK(rounds.Ready(together, 2099).empty());
  CHECK(rounds.waiting());
  CHECK(rounds.Ready(together, 2100) == Names{"y"});
  CHECK_FALSE(rounds.waiting());
}

TEST_CASE("a misfit is sent with the next request, and an error ends the name's count") {
  auto rounds = AfterFirstRound({"x"}, QuorumRule{kRanks, 0, 0});
  rounds.Misfit("x");
  CHECK(rounds.Ready(Alone, 2).empty());
  rounds.Vote("x", 1);
  CHECK(rounds.Ready(Alone, 3) == Names{"x"});
  rounds.Failed("x");
  CHECK_FALSE(rounds.Knows("x"));
  CHECK(rounds.Ready(Alone, 4).empty());
  // The vote that was answered with the error blocks its rank no longer.
  rounds.Begin("y", QuorumRule::Solo());
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    rounds.Vote("y", rank);
  }
  CHECK(rounds.Ready(Alone, 5) == Names{"y"});
}

TEST_CASE("flushes wait for all ranks, and rounds go on without those that flush") {
  auto rounds = AfterFirstRound({"x"}, QuorumRule{kRanks, 0, 0});
  rounds.Flush("x", 0);
  rounds.Vote("x", 1);
  rounds.Vote("x", 2);
  CHECK(rounds.Ready(Alone, 2) == Names{"x"});
  rounds.Sent("x");
  rounds.Flush("x", 1);
  CHECK(rounds.Ready(Alone, 3).empty());
  rounds.Flush("x", 2);
  CHECK(rounds.Ready(Alone, 4) == Names{"x"});
}

TEST_CASE("what is said about unknown names changes nothing") {
  RoundCoordinator rounds(kRanks);
  rounds.Sent("x");
  rounds.Failed("x");
  CHECK_FALSE(rounds.Knows("x"));
  CHECK(rounds.Ready(Alone, 1).empty());
}
