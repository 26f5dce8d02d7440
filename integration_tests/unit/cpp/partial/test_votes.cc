#include <cstdint>
#include <string>
#include <vector>

#include "core/partial/votes.h"
#include "doctest/doctest.h"
#include "events.h"

using namespace paceline::core;

namespace {

// Votes as a coordinator has them that looks after each message whether the round became ready just now: "ready". A
// message that is not counted is "refused".
struct Machine : events::Machine {
  explicit Machine(int32_t size = 0, QuorumRule rule = {}) : votes(size, rule), attendance(size), ranks(size) {
    On("job", [this](const std::vector<int64_t>& job) {  // of so many ranks; the rule's count and max_lag
      ranks = static_cast<int32_t>(job.at(0));
      votes = {ranks, {static_cast<int32_t>(job.at(1)), 0, job.at(2)}};
      attendance = Attendance(ranks);
    });
    On("vote", [this](int32_t rank) { return Look(votes.Vote(rank)); });
    On("late", [this](int32_t rank, int64_t round) { return Look(votes.Arrived(rank, round)); });
    On("flush", [this](int32_t rank) { return Look(votes.Flush(rank)); });
    On("absent", [this](int64_t rank) { return Absent(rank, true); });
    On("back", [this](int64_t rank) { return Absent(rank, false); });
    On("blocked", [this](const std::vector<int64_t>& all) {
      attendance.blocked.assign(attendance.blocked.size(), false);
      for (const int64_t rank : all) {
        attendance.blocked.at(static_cast<size_t>(rank)) = true;
      }
      return Look(true);
    });
    On("standstill", [this] {  // is noticed now
      attendance.standstill = true;
      auto found = Look(true);
      attendance.standstill = false;
      return found;
    });
    On("done", [this] { votes.Executed(); });
    On("round", [this] { return votes.round(); });
    On("closing", [this] { return votes.closing(); });
    // Round 0, in which all vote.
    On("first", [this] {
      for (int32_t rank = 0; rank < ranks; ++rank) {
        CHECK(Look(votes.Vote(rank)) == (rank == ranks - 1 ? "ready" : ""));
        CHECK(votes.ready() == (rank == ranks - 1));
      }
      votes.Executed();
      CHECK_FALSE(votes.ready());
    });
  }

  std::string Look(bool counted) {
    const bool now = votes.Settle(attendance);
    return !counted ? "refused" : now ? "ready" : "";
  }

  std::string Absent(int64_t rank, bool absent) {
    attendance.absent.at(static_cast<size_t>(rank)) = absent;
    return Look(true);
  }

  paceline::core::Votes votes;
  Attendance attendance;
  int32_t ranks;
};

constexpr events::Case kCases[] = {
    {"round 0 needs all ranks, absent ones too", "job2,1,0 absent1 vote0 vote1:ready"},
    {"a rank that waits already cannot vote, arrive or flush, and counts once",
     "job3,2,0 first vote1 vote1:refused late1,1:refused flush1:refused vote2:ready done "
     "flush0 vote0:refused flush0:refused late0,2:refused"},
    {"max_lag: a late call is the sign that is waited for, an absent rank is not waited for",
     "job3,1,1 first vote0:ready vote1 done vote0 late2,1 late2,2:ready done vote0 late1,3 absent2:ready"},
    {"the count shrinks to the ranks that are present, but not to 0; a vote of an absent rank counts",
     "job4,3,0 first absent3 absent2 vote0 vote1:ready done absent1 vote0:ready done absent0 back2 vote1 vote2:ready"},
    {"a round is ready when all have called, some of them late and waiting elsewhere; not while one will call again",
     "job3,2,0 first late1,1 late2,1 blocked1,2 blocked2 vote0 blocked0,1,2:ready"},
    {"a standstill begins a round with the ranks that voted, whatever the rule; not round 0, and not without a vote",
     "job3,3,1 vote0 standstill vote1 vote2:ready done standstill vote0 vote1 standstill:ready done vote0 "
     "standstill:ready"},
    {"a flush lasts until all ranks flush, and others go on meanwhile",
     "job3,2,0 first flush0 flush1 vote2:ready closing:no done flush2:ready closing:yes done closing:no "
     "vote0 vote1:ready"},
};

}  // namespace

TEST_CASE("votes, late calls, flushes and absence") { events::PlayAll<Machine>(kCases); }

TEST_CASE("a round is ready once at its count, and later votes are of the same round") {
  for (const int32_t size : {1, 2, 3, 4, 7, 8}) {
    for (int32_t count = 1; count <= size; ++count) {
      Machine machine(size, {count, 0, 0});
      machine.Play("first");
      for (int32_t rank = 0; rank < size; ++rank) {
        machine.Play("vote" + std::to_string(rank) + (rank == count - 1 ? ":ready" : ""));
        CHECK(machine.votes.ready() == (rank >= count - 1));
      }
      machine.Play("round:1 done round:2");
      CHECK_FALSE(machine.votes.ready());
      machine.Play(count == 1 ? "vote0:ready" : "vote0");
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

TEST_CASE("what came in one cycle is looked at together") {
  Machine machine(3, QuorumRule::Majority(3));
  machine.Play("first");
  machine.attendance.absent = {false, true, true};
  machine.votes.Vote(0);
  // The others are back: their news are behind the vote.
  machine.attendance.absent = {false, false, false};
  CHECK_FALSE(machine.votes.Settle(machine.attendance));
  machine.Play("vote1:ready");
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

TEST_CASE("the initiator's vote makes the round, and only that; the next present rank replaces an absent one") {
  constexpr uint64_t kSeed = 5;
  Machine machine(4, QuorumRule::RandomInitiator(kSeed));
  machine.Play("first");
  // The event of the rank that is so far behind the initiator of the round.
  const auto event = [](const std::string& name, int64_t round, int32_t behind) {
    return name + std::to_string((Initiator(kSeed, round, 4) + behind) % 4);
  };
  for (int64_t round = 1; round < 50; ++round) {
    const auto vote = [&](int32_t behind) { return event("vote", round, behind); };
    machine.Play(vote(1) + " " + vote(2) + " " + vote(0) + ":ready " + vote(3) + " done");
  }
  machine.Play(event("vote", 50, 2) + " " + event("absent", 50, 1) + " " + event("absent", 50, 0) + ":ready");
}

TEST_CASE("late ranks that go on do not begin a round before its initiator") {
  const int32_t initiator = Initiator(5, 1, 4);
  Machine machine(4, QuorumRule::RandomInitiator(5));
  machine.Play("first");
  for (int32_t rank = 0; rank < 4; ++rank) {
    if (rank != initiator) {
      machine.Play("late" + std::to_string(rank) + ",1");
    }
  }
  machine.Play("vote" + std::to_string((initiator + 1) % 4) + " blocked vote" + std::to_string(initiator) + ":ready");
}

TEST_CASE("max_lag: a rank that missed so many rounds is waited for") {
  for (int64_t max_lag = 1; max_lag <= 4; ++max_lag) {
    Machine machine(3, {1, 0, max_lag});
    machine.Play("first");
    for (int64_t round = 0; round < max_lag; ++round) {
      machine.Play("vote0:ready vote1 done");
    }
    // The round after that is made by all, and then all over again.
    machine.Play("vote0 vote2:ready vote1 done vote0:ready");
  }
}
