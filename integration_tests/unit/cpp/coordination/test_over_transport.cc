#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bridge/coordination/control_messages.h"
#include "bridge/coordination/rounds.h"
#include "bridge/lost_rank.h"
#include "coordination/threads.h"
#include "core/coordination/round_message.h"

namespace {

using horovod::paceline::ControlMessages;
using horovod::paceline::LostRank;
using horovod::paceline::Rounds;
using paceline::core::BitOperation;
using paceline::core::RoundMessage;
using std::chrono::milliseconds;
using threads::Post;
using threads::Run;
using threads::ThreadTransport;

constexpr milliseconds kLong{20000};

std::unique_ptr<ThreadTransport> Make(Post& post, int32_t rank, int32_t size, milliseconds limit = kLong) {
  return std::make_unique<ThreadTransport>(post, rank, size, limit);
}

// What a rank has in a round: known to all, for them to work out what comes of it.
std::vector<uint64_t> Words(int32_t rank, int round, size_t count, BitOperation operation) {
  std::mt19937_64 random(static_cast<uint64_t>(1000 * round + rank));
  std::vector<uint64_t> words;
  for (size_t n = 0; n < count; ++n) {
    const auto some = random(), more = random();
    words.push_back(operation == BitOperation::kAnd ? some | more : some & more);
  }
  return words;
}

TEST_CASE("ranks that come at different times combine the bits of all, round after round") {
  constexpr int kRounds = 60;
  for (const int32_t size : {1, 2, 3, 4, 8, 9, 11}) {
    Post post;
    std::atomic<int> wrong{0};
    Run(size, [&](int32_t rank) {
      Rounds rounds(Make(post, rank, size));
      std::mt19937 same(5), own(static_cast<unsigned>(rank));
      for (int round = 0; round < kRounds; ++round) {
        const auto operation = same() % 3 == 0 ? BitOperation::kOr : BitOperation::kAnd;
        const size_t count = same() % 4 == 0 ? RoundMessage::kWords : same() % 5;
        if (own() % 10 == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
        }
        auto words = Words(rank, round, count, operation);
        auto expected = Words(0, round, count, operation);
        for (int32_t other = 1; other < size; ++other) {
          const auto theirs = Words(other, round, count, operation);
          for (size_t n = 0; n < count; ++n) {
            expected[n] = operation == BitOperation::kAnd ? expected[n] & theirs[n] : expected[n] | theirs[n];
          }
        }
        rounds.Combine(operation, words.data(), count);
        wrong += words == expected ? 0 : 1;
      }
      rounds.Leave();
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("a rank that sleeps sees that another has begun, and only then") {
  for (const int32_t size : {2, 4, 9}) {
    Post post;
    std::atomic<int> early{0}, ended{0};
    std::atomic<bool> begun{false};
    Run(size, [&](int32_t rank) {
      Rounds rounds(Make(post, rank, size));
      rounds.Combine(BitOperation::kAnd, nullptr, 0);
      // Nobody begins the second round before all have ended the first.
      early += rounds.Called() && !begun ? 1 : 0;
      ++ended;
      if (rank == size - 1) {
        while (ended < size) {
          std::this_thread::sleep_for(milliseconds(1));
        }
        begun = true;
      } else {
        while (!rounds.Called()) {
          std::this_thread::sleep_for(milliseconds(1));
        }
        early += begun ? 0 : 1;
      }
      rounds.Combine(BitOperation::kAnd, nullptr, 0);
      rounds.Leave();
    });
    CHECK(early == 0);
  }
}

TEST_CASE("who does not come is named after the limit; who did not do the same is, too") {
  Post post;
  Run(2, [&](int32_t rank) {
    Rounds rounds(Make(post, rank, 2, milliseconds(100)));
    uint64_t word = 0;
    rounds.Combine(BitOperation::kAnd, &word, 1);
    if (rank == 0) {
      CHECK_THROWS_WITH_AS(rounds.Combine(BitOperation::kAnd, &word, 1),
                           "Rank 0 of 2: rank 1 has not come to coordination round 2 for 100 ms. Is it alive, its "
                           "network up, and PACELINE_FUSION the same on all ranks?",
                           LostRank);
    }
  });
  Post other;
  std::atomic<int> named{0};
  Run(2, [&](int32_t rank) {
    Rounds rounds(Make(other, rank, 2));
    uint64_t word = 0;
    try {
      rounds.Combine(rank == 0 ? BitOperation::kAnd : BitOperation::kOr, &word, 1);
    } catch (const std::runtime_error& error) {
      named += std::string(error.what()).find("is in coordination round 1 (") != std::string::npos ? 1 : 0;
    }
  });
  CHECK(named >= 1);  // the other one may hear first that connections are closed
}

TEST_CASE("texts of any length go to the first rank and to all, in order") {
  for (const int32_t size : {2, 3, 4}) {
    Post post;
    std::atomic<int> wrong{0};
    const auto text = [](int32_t rank, int round, size_t bytes) {
      return std::string(bytes, static_cast<char>('a' + (rank + round) % 26));
    };
    Run(size, [&](int32_t rank) {
      ControlMessages control_messages(Make(post, rank, size));
      const std::vector<size_t> lengths = {0, 1, 4095, 4096, 4097, 100000};
      for (int round = 0; round < 30; ++round) {
        const auto of = [&](int32_t other) { return lengths[static_cast<size_t>(other + round) % lengths.size()]; };
        if (rank == 0) {
          const auto all = control_messages.Gather();
          for (int32_t other = 1; other < size; ++other) {
            wrong += all[static_cast<size_t>(other)] == text(other, round, of(other)) ? 0 : 1;
          }
          control_messages.Broadcast(text(0, round, of(0)));
        } else {
          control_messages.Send(text(rank, round, of(rank)));
          wrong += control_messages.Receive() == text(0, round, of(0)) ? 0 : 1;
        }
      }
      control_messages.Leave();
    });
    CHECK(wrong == 0);
  }
}

}  // namespace
