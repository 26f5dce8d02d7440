#include <algorithm>
#include <string>
#include <vector>

#include "collectives/cases.h"
#include "collectives/wire.h"
#include "core/collectives/algorithms.h"
#include "doctest/doctest.h"

using namespace collectives;
using paceline::core::DoublingAllreduce;

namespace {

CollectiveSchedule Doubling(Place place, const BlockedMessage& message, int32_t /*root*/) {
  return DoublingAllreduce(place, message);
}

// The largest m with 2^m <= p.
int32_t Rounds(int32_t p) {
  int32_t rounds = 0;
  while ((2 << rounds) <= p) {
    ++rounds;
  }
  return rounds;
}

}  // namespace

TEST_CASE("recursive doubling leaves the same term on all ranks, with operands in the order of ranks") {
  ForAllCases({"doubling", false, Doubling}, [](const auto& schedules, int32_t p, const auto& message, int32_t) {
    std::string in_order;
    for (int32_t rank = 0; rank < p; ++rank) {
      in_order += static_cast<char>('a' + rank);
    }
    const auto terms = Terms(schedules, message.elements);
    for (const auto& values : terms) {
      CHECK(values == terms.front());
      for (std::string term : values) {
        term.erase(std::remove_if(term.begin(), term.end(), [](char c) { return c == '(' || c == ')'; }), term.end());
        CHECK(term == in_order);
      }
    }
    for (const auto& schedule : schedules) {
      CHECK(schedule.scratch_blocks <= Rounds(p) + 1);
    }
  });
}

TEST_CASE("the terms of recursive doubling are trees") {
  const auto term = [](int32_t p) {
    return Terms(OnAll(p, [](Place place) { return DoublingAllreduce(place, {1}); }), 1).back().front();
  };
  CHECK(term(4) == "((ab)(cd))");
  CHECK(term(5) == "(((ab)c)(de))");
  CHECK(term(7) == "(((ab)(cd))((ef)g))");
}

TEST_CASE("recursive doubling takes log2 p rounds, at most two more if p is no power of two; no message waits") {
  for (int32_t p = 2; p <= 17; ++p) {
    const auto schedules = OnAll(p, [](Place place) { return DoublingAllreduce(place, {5}); });
    Wire latency;
    latency.latency_s = 1;
    latency.notice_s = 1;
    const int32_t folds = (1 << Rounds(p)) == p ? 0 : 2;
    for (const double rounds : {SecondsOn(latency, schedules, 5), StepsOf(schedules, 5)}) {
      CAPTURE(p);
      CHECK(rounds >= Rounds(p) + folds / 2);
      CHECK(rounds <= Rounds(p) + folds);
    }
  }
}
