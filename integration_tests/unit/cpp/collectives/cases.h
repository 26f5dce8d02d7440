// Numbers of ranks, sizes and blocks that tests try, and all algorithms.

#ifndef PACELINE_UNIT_COLLECTIVES_CASES_H
#define PACELINE_UNIT_COLLECTIVES_CASES_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/job.h"
#include "collectives/random_order.h"
#include "core/collectives/algorithms.h"

namespace collectives {

using paceline::core::BlockedMessage;

struct Algorithm {
  std::string name;
  bool roots;  // there is one, and it matters
  std::function<CollectiveSchedule(Place, const BlockedMessage&, int32_t root)> make;
};

// Of everybody's values: all ranks have the reduction at the end.
inline std::vector<Algorithm> Allreduces() {
  using namespace paceline::core;
  return {{"linear", true, LinearAllreduce},
          {"ring", false,
           [](Place place, const BlockedMessage& message, int32_t) { return RingAllreduce(place, message); }},
          {"direct", false,
           [](Place place, const BlockedMessage& message, int32_t) { return DirectAllreduce(place, message); }},
          {"doubling", false,
           [](Place place, const BlockedMessage& message, int32_t) { return DoublingAllreduce(place, message); }}};
}

inline std::vector<Algorithm> AllAlgorithms() {
  auto all = Allreduces();
  all.push_back({"broadcast", true, paceline::core::LinearBroadcast});
  all.push_back({"reduce", true, paceline::core::LinearReduce});
  all.push_back({"reduce-scatter", false, [](Place place, const BlockedMessage& message, int32_t) {
                   return paceline::core::DirectReduceScatter(place, message);
                 }});
  all.push_back({"all-gather", false, [](Place place, const BlockedMessage& message, int32_t) {
                   return paceline::core::DirectAllGather(place, message);
                 }});
  return all;
}

// Calls `body(schedules of all ranks, p, message, root)` for p = 1 ... 8 and 13, sizes 0, 1, odd, below, at and above a
// block, blocks larger than the message, and every root.
template <typename Body>
void ForAllCases(const Algorithm& algorithm, const Body& body) {
  for (const int32_t p : {1, 2, 3, 4, 5, 6, 7, 8, 13}) {
    for (const int64_t n : {0, 1, 2, 7, 12, 29}) {
      for (const int64_t block : {1, 3, 4, 12, 64}) {
        for (int32_t root = 0; root < (algorithm.roots ? p : 1); ++root) {
          const BlockedMessage message{n, block, p % 2 == 0 ? 4 : 1, p % 3 == 0 ? 3 : 2};
          INFO(algorithm.name, ", ", p, " ranks, ", n, " elements, blocks of ", block, ", root ", root);
          body(OnAll(p, [&](Place place) { return algorithm.make(place, message, root); }), p, message, root);
        }
      }
    }
  }
}

// What every rank holds after everything happened in a random order; REQUIREs the same for two other orders. Values
// tell how they were reduced: rank 2's is "c", that of a left operand x and a right one y is "(xy)". Equal terms are
// equal bits, whatever is reduced.
inline std::vector<std::vector<std::string>> Terms(const std::vector<CollectiveSchedule>& schedules, int64_t elements) {
  static uint32_t seed = 0;
  const auto run = [&] {
    Job<std::string> job(
        schedules, elements, [](int32_t rank, int64_t) { return std::string(1, static_cast<char>('a' + rank)); },
        [](const std::string& left, const std::string& right) { return "(" + left + right + ")"; });
    RandomOrder<std::string> order(++seed);
    order.Add(job);
    order.Run();
    std::vector<std::vector<std::string>> results;
    for (int32_t rank = 0; rank < job.ranks(); ++rank) {
      results.push_back(job.Result(rank));
    }
    return results;
  };
  auto results = run();
  REQUIRE(run() == results);
  REQUIRE(run() == results);
  return results;
}

// The term of p ranks one after the other, from `first` on and around.
inline std::string InTurn(int32_t first, int32_t p) {
  std::string term;
  for (int32_t n = 0; n < p; ++n) {
    const std::string value(1, static_cast<char>('a' + (first + n) % p));
    term = n == 0 ? value : "(" + term + value + ")";
  }
  return term;
}

}  // namespace collectives

#endif  // PACELINE_UNIT_COLLECTIVES_CASES_H
