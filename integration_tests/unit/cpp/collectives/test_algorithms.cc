// What each algorithm leaves on the ranks, the scratch memory that it takes, and its steps.

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "collectives/cases.h"
#include "collectives/wire.h"
#include "core/collectives/algorithms.h"
#include "doctest/doctest.h"

using namespace collectives;
using paceline::core::DirectAllreduce;
using paceline::core::DoublingAllreduce;
using paceline::core::LinearAllreduce;
using paceline::core::LinearBroadcast;
using paceline::core::LinearReduce;
using paceline::core::RingAllreduce;

namespace {

// The largest m with 2^m <= p.
int32_t Log2(int32_t p) { return p < 2 ? 0 : 1 + Log2(p / 2); }

std::string Own(int32_t rank) { return std::string(1, static_cast<char>('a' + rank)); }

// Neighbours fold until a power of two is left; then neighbours, pairs of them and so on are added.
std::string Tree(int32_t p) {
  const int32_t core = 1 << Log2(p), pairs = p - core;
  std::vector<std::string> terms;
  for (int32_t index = 0; index < core; ++index) {
    terms.push_back(index < pairs ? "(" + Own(2 * index) + Own(2 * index + 1) + ")" : Own(index + pairs));
  }
  while (terms.size() > 1) {
    for (size_t n = 0; n < terms.size() / 2; ++n) {
      terms[n] = "(" + terms[2 * n] + terms[2 * n + 1] + ")";
    }
    terms.resize(terms.size() / 2);
  }
  return terms.front();
}

// The first shards have an element more than the last ones, if they differ.
int32_t ShardOf(int64_t element, int64_t elements, int32_t p) {
  const int64_t larger = elements % p, of_larger = larger * (elements / p + 1);
  return static_cast<int32_t>(element < of_larger ? element / (elements / p + 1)
                                                  : larger + (element - of_larger) / (elements / p));
}

// A case that ForAllCases tries.
struct Case {
  int32_t p;
  BlockedMessage message;
  int32_t root;
};

struct Row {
  const char* algorithm;
  std::function<std::string(const Case& one, int32_t rank, int64_t element)> term;
  std::function<int32_t(const Case& one)> scratch_blocks;  // at most
};

int32_t Asked(const Case& one) { return one.message.scratch; }

std::string AlongTheChain(const Case& one, int32_t /*rank*/, int64_t /*element*/) {
  return InTurn((one.root + 1) % one.p, one.p);
}

const Row kRows[] = {
    {"broadcast", [](const Case& one, int32_t, int64_t) { return Own(one.root); }, [](const Case&) { return 0; }},
    {"reduce",  // ranks but the root keep what they brought
     [](const Case& one, int32_t rank, int64_t) { return rank == one.root ? AlongTheChain(one, 0, 0) : Own(rank); },
     Asked},
    {"linear", AlongTheChain, Asked},
    {"ring",  // each shard around the ring, from its own rank on
     [](const Case& one, int32_t, int64_t element) {
       return InTurn(ShardOf(element, one.message.elements, one.p), one.p);
     },
     Asked},
    {"direct", [](const Case& one, int32_t, int64_t) { return InTurn(0, one.p); },
     [](const Case& one) { return 2 * (one.p - 1); }},
    {"reduce-scatter",  // ranks keep what they brought, but for their shard
     [](const Case& one, int32_t rank, int64_t element) {
       return ShardOf(element, one.message.elements, one.p) == rank ? InTurn(0, one.p) : Own(rank);
     },
     [](const Case& one) { return 2 * (one.p - 1); }},
    {"all-gather",
     [](const Case& one, int32_t, int64_t element) { return Own(ShardOf(element, one.message.elements, one.p)); },
     [](const Case&) { return 0; }},
    {"doubling", [](const Case& one, int32_t, int64_t) { return Tree(one.p); },
     [](const Case& one) { return Log2(one.p) + 1; }},
};

}  // namespace

TEST_CASE("what every algorithm leaves on the ranks, in whatever order messages come, and its scratch memory") {
  CHECK(Tree(4) == "((ab)(cd))");
  CHECK(Tree(7) == "(((ab)(cd))((ef)g))");
  for (const auto& algorithm : AllAlgorithms()) {
    const auto& row = *std::find_if(std::begin(kRows), std::end(kRows),
                                    [&](const Row& one) { return one.algorithm == algorithm.name; });
    ForAllCases(algorithm, [&](const auto& schedules, int32_t p, const auto& message, int32_t root) {
      const Case one{p, message, root};
      const auto terms = Terms(schedules, message.elements);
      REQUIRE(static_cast<int32_t>(terms.size()) == p);
      for (int32_t rank = 0; rank < p; ++rank) {
        std::vector<std::string> expected;
        for (int64_t element = 0; element < message.elements; ++element) {
          expected.push_back(row.term(one, rank, element));
        }
        CHECK(terms[static_cast<size_t>(rank)] == expected);
      }
      for (const auto& schedule : schedules) {
        CHECK(schedule.scratch_blocks <= row.scratch_blocks(one));
        // Recursive doubling sends the message as a whole.
        CHECK((schedule.scratch_count <= message.block || algorithm.name == "doubling"));
        CHECK(schedule.scratch_count <= message.elements);
      }
    });
  }
}

TEST_CASE("which allreduces add up every element in the order of ranks; two operands have one order") {
  for (int32_t number = 0; number < paceline::core::kAllreduceMethods; ++number) {
    const auto method = static_cast<paceline::core::AllreduceMethod>(number);
    for (int32_t p = 1; p <= 8; ++p) {
      INFO(paceline::core::NameOf(method), ", ", p, " ranks");
      const auto schedules = OnAll(p, [&](Place place) { return paceline::core::Allreduce(method, place, {11, 2}); });
      bool in_order = true;
      for (const auto& of_rank : Terms(schedules, 11)) {
        in_order = in_order && std::all_of(of_rank.begin(), of_rank.end(),
                                           [&](const auto& term) { return term == InTurn(0, p) || p == 2; });
      }
      CHECK(paceline::core::SumsInRankOrder(method, p) == in_order);
    }
  }
}

TEST_CASE("each way of a linear collective takes ceil(n/b) + p - 2 steps, and both overlap") {
  for (int32_t p = 2; p <= 8; ++p) {
    for (const int64_t n : {1, 12, 29, 100}) {
      for (const int64_t block : {1, 3, 4, 64}) {
        const BlockedMessage message{n, block};
        const auto steps = static_cast<double>((n + block - 1) / block);
        const auto all = [&](const auto& make) {
          return OnAll(p, [&](Place place) { return make(place, message, p / 2); });
        };
        INFO(p, " ranks, ", n, " elements, blocks of ", block);
        CHECK(StepsOf(all(LinearBroadcast), n) == steps + p - 2);
        CHECK(StepsOf(all(LinearReduce), n) == steps + p - 2);
        // The way back begins when the root has the first block: p - 1 steps after the beginning of the way there.
        CHECK(StepsOf(all(LinearAllreduce), n, true) == steps + p - 2 + p - 1);
        // On one card for both neighbours, ranks within the chain send everything twice.
        const double on_cards = StepsOf(all(LinearAllreduce), n);
        CHECK(on_cards >= (p == 2 ? steps + 1 : 2 * steps));
        CHECK(on_cards <= (p == 2 ? steps + 1 : 2 * steps + 2 * p - 4));
      }
    }
  }
}

TEST_CASE("a ring allreduce fills the wire: each rank sends without a pause, start-ups and combining hidden") {
  for (int32_t p = 2; p <= 8; ++p) {
    const int64_t segments = 10, n = p * segments;
    const auto schedules = OnAll(p, [&](Place place) { return RingAllreduce(place, {n, 1}); });
    CHECK(StepsOf(schedules, n) == 2.0 * (p - 1) * static_cast<double>(segments));
    Wire wire;
    wire.beta_s = 1;
    wire.gamma_s = 0.7;
    wire.latency_s = wire.notice_s = 0.1;
    const double sent_s = 2.0 * (p - 1) * static_cast<double>(segments);
    CHECK(SecondsOn(wire, schedules, n) <= sent_s + 2);
  }
}

TEST_CASE("a direct allreduce has two start-ups, and no two ranks send to the same one at a time") {
  for (int32_t p = 2; p <= 8; ++p) {
    for (const int64_t segments : {1, 2, 7}) {
      const int64_t n = p * segments;
      const auto schedules = OnAll(p, [&](Place place) { return DirectAllreduce(place, {n, 1}); });
      Wire latency;
      latency.latency_s = latency.notice_s = 1;
      if (segments <= 2) {  // so many have room at once
        CHECK(SecondsOn(latency, schedules, n) == 2);
      }
      CHECK(StepsOf(schedules, n) == 2.0 * (p - 1) * static_cast<double>(segments));
    }
  }
}

TEST_CASE("recursive doubling takes log2 p rounds, at most two more if p is no power of two; no message waits") {
  for (int32_t p = 2; p <= 17; ++p) {
    const auto schedules = OnAll(p, [](Place place) { return DoublingAllreduce(place, {5}); });
    Wire latency;
    latency.latency_s = 1;
    latency.notice_s = 1;
    const int32_t folds = (1 << Log2(p)) == p ? 0 : 2;
    for (const double rounds : {SecondsOn(latency, schedules, 5), StepsOf(schedules, 5)}) {
      CAPTURE(p);
      CHECK(rounds >= Log2(p) + folds / 2);
      CHECK(rounds <= Log2(p) + folds);
    }
  }
}
