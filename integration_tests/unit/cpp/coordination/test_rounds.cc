#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "core/coordination/round_message.h"
#include "core/coordination/round_phases.h"

namespace {

using namespace paceline::core;

std::vector<std::vector<RoundPhase>> AllPhases(int32_t size) {
  std::vector<std::vector<RoundPhase>> all;
  for (int32_t rank = 0; rank < size; ++rank) {
    all.push_back(RoundPhases(rank, size));
  }
  return all;
}

// What every rank knows after all phases.
std::vector<RoundMessage> Run(std::vector<RoundMessage> known) {
  const auto size = static_cast<int32_t>(known.size());
  const auto all = AllPhases(size);
  for (size_t phase = 0; phase < all[0].size(); ++phase) {
    const auto sent = known;
    for (size_t rank = 0; rank < known.size(); ++rank) {
      for (const auto from : all[rank][phase].from) {
        CHECK(Combine(known[rank], sent[static_cast<size_t>(from)]));
      }
    }
  }
  return known;
}

TEST_CASE("the bits of all ranks become their and, or their or, on every rank") {
  std::mt19937_64 random(1);
  for (int32_t size = 1; size <= 70; ++size) {
    for (const auto operation : {BitOperation::kAnd, BitOperation::kOr}) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{17}, RoundMessage::kWords}) {
        std::vector<RoundMessage> known;
        std::vector<uint64_t> expected(count, operation == BitOperation::kAnd ? ~uint64_t{0} : 0);
        for (int32_t rank = 0; rank < size; ++rank) {
          std::vector<uint64_t> words;
          for (auto& word : expected) {
            // Most bits set for and, few for or, so that results have both.
            const auto own = operation == BitOperation::kAnd ? random() | random() | random() | random()
                                                             : random() & random() & random() & random();
            words.push_back(own);
            word = operation == BitOperation::kAnd ? word & own : word | own;
          }
          known.push_back(MessageOf(5, operation, words.data(), count));
        }
        for (const auto& one : Run(known)) {
          REQUIRE(one.count == count);
          for (size_t n = 0; n < count; ++n) {
            REQUIRE(one.words.at(n) == expected[n]);
          }
        }
      }
    }
  }
}

TEST_CASE("ranks tell each other in few hops") {
  const auto hops = [](int32_t size) { return RoundPhases(0, size).size(); };
  CHECK(hops(1) == 0);
  CHECK(hops(2) == 1);
  CHECK(hops(kMostInOneHop) == 1);
  CHECK(hops(kMostInOneHop + 1) == 2);
  CHECK(hops(64) == 2);
  CHECK(hops(65) == 3);
  CHECK(hops(512) == 3);
  CHECK(RoundPhases(3, 32)[0].to.size() + RoundPhases(3, 32)[1].to.size() <= 11);
}

TEST_CASE("who sends is waited for, once in a phase, and nobody tells itself") {
  for (int32_t size = 1; size <= 70; ++size) {
    const auto all = AllPhases(size);
    for (int32_t rank = 0; rank < size; ++rank) {
      for (size_t phase = 0; phase < all[0].size(); ++phase) {
        const auto& to = all[static_cast<size_t>(rank)][phase].to;
        const std::set<int32_t> once(to.begin(), to.end());
        CHECK(once.size() == to.size());
        CHECK(once.count(rank) == 0);
        for (const auto peer : to) {
          const auto& from = all[static_cast<size_t>(peer)][phase].from;
          CHECK(std::set<int32_t>(from.begin(), from.end()).count(rank) == 1);
        }
      }
    }
  }
}

TEST_CASE("one rank that begins wakes all the others") {
  // Awake ranks have sent their first phase; a later one only when all that they wait for before it are awake.
  for (int32_t size = 2; size <= 70; ++size) {
    const auto all = AllPhases(size);
    const auto ranks = static_cast<size_t>(size);
    std::vector<bool> awake(ranks, false);
    awake[0] = true;
    std::vector<size_t> ended(ranks, 0);  // phases
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t rank = 0; rank < ranks; ++rank) {
        if (!awake[rank]) {
          continue;
        }
        for (size_t phase = 0; phase <= ended[rank] && phase < all[rank].size(); ++phase) {
          for (const auto peer : all[rank][phase].to) {
            changed = changed || !awake[static_cast<size_t>(peer)];
            awake[static_cast<size_t>(peer)] = true;
          }
        }
        if (ended[rank] < all[rank].size()) {
          bool notified = true;
          for (const auto peer : all[rank][ended[rank]].from) {
            notified = notified && awake[static_cast<size_t>(peer)] && ended[static_cast<size_t>(peer)] >= ended[rank];
          }
          ended[rank] += notified ? 1 : 0;
          changed = changed || notified;
        }
      }
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      CHECK(ended[rank] == all[rank].size());
    }
  }
}

TEST_CASE("what is of another round is not combined") {
  const uint64_t word = 3;
  auto known = MessageOf(7, BitOperation::kAnd, &word, 1);
  CHECK_FALSE(Combine(known, MessageOf(8, BitOperation::kAnd, &word, 1)));
  CHECK_FALSE(Combine(known, MessageOf(7, BitOperation::kOr, &word, 1)));
  CHECK_FALSE(Combine(known, MessageOf(7, BitOperation::kAnd, &word, 0)));
  CHECK(Text(known) == "round 7 (and, 1 words)");
  CHECK(known.bytes() == 24);
}

}  // namespace
