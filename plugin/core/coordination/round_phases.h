// Who tells whom in a coordination round: the fewest hops after which every rank knows the bits of all.

#ifndef PACELINE_CORE_COORDINATION_ROUND_PHASES_H
#define PACELINE_CORE_COORDINATION_ROUND_PHASES_H

#include <cstdint>
#include <vector>

namespace paceline::core {

// What one rank does in a phase: it sends what it knows to each of `to`, then waits for what each of `from` knew.
struct RoundPhase {
  std::vector<int32_t> to, from;
};

// Up to so many ranks everybody tells everybody, in one hop.
constexpr int32_t kMostInOneHop = 8;

// With k phases and radix r = ceil(p^(1/k)), phases have the strides r^(k-1), ..., r, 1: in each, a rank tells those at
// 1,
// ..., r - 1 strides behind it (dissemination, Hensgen et al. 1988, of a higher radix). Ranks are told of in more than
// one way where p is no power of r, so what is combined must not mind that: and, or.
//
// Nobody need be awake when a round begins: a rank sends its first phase before it waits for anything, and whoever is
// sent something wakes up and does the same.
std::vector<RoundPhase> RoundPhases(int32_t rank, int32_t size);

}  // namespace paceline::core

#endif  // PACELINE_CORE_COORDINATION_ROUND_PHASES_H
