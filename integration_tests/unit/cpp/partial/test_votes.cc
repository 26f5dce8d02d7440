#include <cstdint>
#include <utility>
#include <vector>

#include "core/partial/votes.h"
#include "doctest/doctest.h"

using paceline::core::Attendance;
using paceline::core::Initiator;
using paceline::core::QuorumRule;

namespace {

// Votes as a coordinator has them that looks after each message whether the round became ready just now.
struct Votes {
  Votes(int32_t size, QuorumRule rule) : votes(size, rule), attendance(size) {}

  bool Vote(int32_t rank) {
    REQUIRE(votes.Vote(rank));
    return Settle();
  }
  bool Arrived(int32_t rank, int64_t round) {
    REQUIRE(votes.Arrived(rank, round));
    return Settle();
  }
  bool Flush(int32_t rank) {
    REQUIRE(votes.Flush(rank));
    return Settle();
  }
  bool Absent(int32_t rank, bool absent = true) {
    attendance.absent[static_cast<size_t>(rank)] = absent;
    return Settle();
  }
  bool Blocked(std::vector<bool> ranks) {
    attendance.blocked = std::move(ranks);
    return Settle();
  }
  bool Settle() { return votes.Settle(attendance); }
  void Executed() { votes.Executed(); }
  bool ready() const { return votes.ready(); }

  paceline::core::Votes votes;
  Attendance attendance;
};

// With round 0 behind it.
Votes AfterFirstRound(int32_t size, QuorumRule rule) {
  Votes votes(size, rule);
  for (int32_t rank = 0; rank < size; ++rank) {
    CHECK(votes.Vote(rank) == (rank == size - 1));
  }
  votes.Executed();
  return votes;
}

// A round in which the given ranks vote.
void Round(Votes& votes, const std::vector<int32_t>& ranks) {
  for (const int32_t rank : ranks) {
    votes.Vote(rank);
  }
  REQUIRE(votes.ready());
  votes.Executed();
}

}  // namespace

TEST_CASE("round 0 needs all ranks, absent ones too") {
  for (const int32_t size : {1, 2, 3, 4, 7, 8}) {
    AfterFirstRound(size, QuorumRule::Solo());
  }
  Votes votes(2, QuorumRule::Solo());
  CHECK_FALSE(votes.Absent(1));
  CHECK_FALSE(votes.Vote(0));
  CHECK(votes.Vote(1));
}

TEST_CASE("a round is ready once at its count, and later votes are of the same round") {
  for (const int32_t size : {2, 3, 4, 7, 8}) {
    for (int32_t count = 1; count <= size; ++count) {
      Votes votes = AfterFirstRound(size, {count, 0, 0});
      for (int32_t rank = 0; rank < size; ++rank) {
        CHECK(votes.Vote(rank) == (rank == count - 1));
        CHECK(votes.ready() == (rank >= count - 1));
      }
      CHECK(votes.votes.round() == 1);
      votes.Executed();
      CHECK(votes.votes.round() == 2);
      CHECK_FALSE(votes.ready());
      CHECK(votes.Vote(0) == (count == 1));
    }
  }
}

TEST_CASE("a majority is at least half") {
  CHECK(QuorumRule::Majority(1).count == 1);
  CHECK(QuorumRule::Majority(2).count == 1);
  CHECK(QuorumRule::Majority(3).count == 2);
  CHECK(QuorumRule::Majority(7).count == 4);
  CHECK(QuorumRule::Majority(8).count == 4);
}

TEST_CASE("a rank that waits already cannot vote, arrive or flush, and counts once") {
  Votes votes = AfterFirstRound(3, QuorumRule::Majority(3));
  CHECK_FALSE(votes.Vote(1));
  CHECK_FALSE(votes.votes.Vote(1));
  CHECK_FALSE(votes.votes.Arrived(1, 1));
  CHECK_FALSE(votes.votes.Flush(1));
  CHECK_FALSE(votes.Settle());
  CHECK(votes.Vote(2));
  votes.Executed();
  CHECK_FALSE(votes.Flush(0));
  CHECK_FALSE(votes.votes.Vote(0));
  CHECK_FALSE(votes.votes.Flush(0));
  CHECK_FALSE(votes.votes.Arrived(0, 2));
}

TEST_CASE("what came in one cycle is looked at together") {
  Votes votes = AfterFirstRound(3, QuorumRule::Majority(3));
  votes.attendance.absent = {false, true, true};
  votes.votes.Vote(0);
  // The others are back: their news are behind the vote.
  votes.attendance.absent = {false, false, false};
  CHECK_FALSE(votes.Settle());
  CHECK(votes.Vote(1));
}

TEST_CASE("initiators are outputs of SplitMix64") {
  // The generator's published outputs for the seeds 0 and 1234567.
  const std::vector<uint64_t> of_0 = {0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F};
  const std::vector<uint64_t> of_1234567 = {6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
                                            4593380528125082431U};
  for (const int32_t size : {1, 2, 3, 7, 8, 1000}) {
    for (size_t round = 0; round < of_0.size(); ++round) {
      CHECK(Initiator(0, static_cast<int64_t>(round), size) == static_cast<int32_t>(of_0[round] % size));
    }
    for (size_t round = 0; round < of_1234567.size(); ++round) {
      CHECK(Initiator(1234567, static_cast<int64_t>(round), size) == static_cast<int32_t>(of_1234567[round] % size));
    }
  }
}

TEST_CASE("all ranks are drawn equally often") {
  constexpr int32_t kSize = 7, kRounds = 70000;
  std::vector<int32_t> drawn(kSize, 0);
  for (int64_t round = 0; round < kRounds; ++round) {
    ++drawn[static_cast<size_t>(Initiator(42, round, kSize))];
  }
  for (const int32_t times : drawn) {
    CHECK(times == doctest::Approx(kRounds / kSize).epsilon(0.05));
  }
}

TEST_CASE("the initiator's vote makes the round, and only that") {
  constexpr uint64_t kSeed = 5;
  Votes votes = AfterFirstRound(4, QuorumRule::RandomInitiator(kSeed));
  for (int64_t round = 1; round < 50; ++round) {
    const int32_t initiator = Initiator(kSeed, round, 4);
    CHECK_FALSE(votes.Vote((initiator + 1) % 4));
    CHECK_FALSE(votes.Vote((initiator + 2) % 4));
    CHECK(votes.Vote(initiator));
    CHECK_FALSE(votes.Vote((initiator + 3) % 4));
    votes.Executed();
  }
}

TEST_CASE("an absent initiator is replaced by the next rank that is present") {
  const int32_t initiator = Initiator(5, 1, 4);
  const auto after = [&](int32_t ranks) { return (initiator + ranks) % 4; };
  Votes votes = AfterFirstRound(4, QuorumRule::RandomInitiator(5));
  CHECK_FALSE(votes.Vote(after(2)));
  CHECK_FALSE(votes.Absent(after(1)));
  CHECK(votes.Absent(initiator));
}

TEST_CASE("max_lag: a rank that missed so many rounds is waited for") {
  for (int64_t max_lag = 1; max_lag <= 4; ++max_lag) {
    Votes votes = AfterFirstRound(3, {1, 0, max_lag});
    for (int64_t round = 0; round < max_lag; ++round) {
      CHECK(votes.Vote(0));
      CHECK_FALSE(votes.Vote(1));
      votes.Executed();
    }
    // The round after that is made by all, and then all over again.
    CHECK_FALSE(votes.Vote(0));
    CHECK(votes.Vote(2));
    CHECK_FALSE(votes.Vote(1));
    votes.Executed();
    CHECK(votes.Vote(0));
  }
}

TEST_CASE("max_lag: a late call is the sign that is waited for, an absent rank is not waited for") {
  Votes votes = AfterFirstRound(3, {1, 0, 1});
  Round(votes, {0, 1});
  CHECK_FALSE(votes.Vote(0));
  CHECK_FALSE(votes.Arrived(2, 1));  // of a call before round 1
  CHECK(votes.Arrived(2, 2));
  votes.Executed();
  CHECK_FALSE(votes.Vote(0));
  CHECK_FALSE(votes.Arrived(1, 3));
  CHECK(votes.Absent(2));
}

TEST_CASE("the count shrinks to the ranks that are present") {
  Votes votes = AfterFirstRound(4, {3, 0, 0});
  votes.Absent(3);
  votes.Absent(2);
  CHECK_FALSE(votes.Vote(0));
  CHECK(votes.Vote(1));
  votes.Executed();
  votes.Absent(1);
  CHECK(votes.Vote(0));
  votes.Executed();
  CHECK_FALSE(votes.Absent(0));  // never to 0
  CHECK_FALSE(votes.ready());
  votes.Absent(2, false);
  CHECK_FALSE(votes.Vote(1));  // absent, but its vote counts
  CHECK(votes.Vote(2));
}

TEST_CASE("a round is ready when all have called, some of them late and waiting elsewhere") {
  Votes votes = AfterFirstRound(3, QuorumRule::Majority(3));
  CHECK_FALSE(votes.Arrived(1, 1));
  CHECK_FALSE(votes.Arrived(2, 1));
  CHECK_FALSE(votes.Blocked({false, true, true}));  // nobody waits here
  CHECK_FALSE(votes.Blocked({false, false, true}));
  CHECK_FALSE(votes.Vote(0));  // rank 1 will call again
  CHECK(votes.Blocked({true, true, true}));
}

TEST_CASE("late ranks that go on do not begin a round before its initiator") {
  const int32_t initiator = paceline::core::Initiator(5, 1, 4);
  Votes votes = AfterFirstRound(4, QuorumRule::RandomInitiator(5));
  for (int32_t rank = 0; rank < 4; ++rank) {
    if (rank != initiator) {
      CHECK_FALSE(votes.Arrived(rank, 1));
    }
  }
  CHECK_FALSE(votes.Vote((initiator + 1) % 4));
  CHECK_FALSE(votes.Blocked(std::vector<bool>(4, false)));
  CHECK(votes.Vote(initiator));
}

TEST_CASE("a flush lasts until all ranks flush, and others go on meanwhile") {
  Votes votes = AfterFirstRound(3, QuorumRule::Majority(3));
  CHECK_FALSE(votes.Flush(0));
  CHECK_FALSE(votes.Flush(1));
  CHECK(votes.Vote(2));
  CHECK_FALSE(votes.votes.closing());
  votes.Executed();
  CHECK(votes.Flush(2));
  CHECK(votes.votes.closing());
  votes.Executed();
  CHECK_FALSE(votes.votes.closing());
  CHECK_FALSE(votes.Vote(0));
  CHECK(votes.Vote(1));
}
