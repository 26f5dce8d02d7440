// The collectives that Paceline has of its own, by algorithm: functions that write down what a rank has to do.

#ifndef PACELINE_CORE_COLLECTIVES_ALGORITHMS_H
#define PACELINE_CORE_COLLECTIVES_ALGORITHMS_H

#include <cstdint>
#include <string>

#include "core/collectives/schedule.h"

namespace paceline::core {

// n elements in blocks of b among p ranks; shards are p parts of the message, as equal as can be. What does not depend
// on n, b or the network:
//
//   algorithm  elements sent by a rank    start-ups          scratch        order of operands
//   linear     n; allreduce: 2 n          p - 1; 2 (p - 1)   8 b            along the chain
//   ring       2 (p-1)/p n                2 (p - 1)          8 b            along the ring, from another rank per shard
//   direct     2 (p-1)/p n                2                  2 (p-1) b      ranks 0, 1, 2, ... whatever the shard
//   doubling   log2(p) n                  log2 p (+ 2)       log2(p) n      a tree over ranks 0, 1, 2, ...
//
// All ranks are left with the same bits, and have them again in the next run: which operands meet in which order
// depends on p, and under `ring` on the shard; never on what comes first.
//
// All throw std::invalid_argument, saying what was found and what to give, for a rank or root that does not exist,
// negative sizes, a block or `ahead` below 1, and messages of more than 2^20 blocks.

// Linear Pipelining (Wang et al., 2017). A chain of all ranks ends at `root`; the ranks in it stand in their cyclic
// order. A reduce goes along it, a broadcast back, an allreduce both: a block begins its way back when the root has it.
// Each way takes ceil(n/b) + p - 2 steps; both of them overlap.
CollectiveSchedule LinearBroadcast(Place place, const BlockedMessage& message, int32_t root);
CollectiveSchedule LinearReduce(Place place, const BlockedMessage& message, int32_t root);
CollectiveSchedule LinearAllreduce(Place place, const BlockedMessage& message, int32_t root);

// Reduce-scatter and all-gather around the ring of ranks, one shard behind the other; the segments of b elements of a
// shard are sent independently, so that one is received while another is combined and a third sent.
CollectiveSchedule RingAllreduce(Place place, const BlockedMessage& message);

// Every rank sends shard j to rank j, which combines what all have and sends it back to all.
CollectiveSchedule DirectAllreduce(Place place, const BlockedMessage& message);
// The first half of it: rank j has the reduction of shard j at the end, its other shards are as it brought them.
CollectiveSchedule DirectReduceScatter(Place place, const BlockedMessage& message);
// The second half: every rank sends its own shard to all others, whose values there do not matter.
CollectiveSchedule DirectAllGather(Place place, const BlockedMessage& message);

// Ranks at distance 1, 2, 4, ... exchange all that they have. If p is not a power of two, the first ranks begin and end
// in pairs. The message is sent undivided: `message.block` is not used. Not for codecs with loss: what a rank keeps and
// what it gives away would differ.
CollectiveSchedule DoublingAllreduce(Place place, const BlockedMessage& message);

enum class AllreduceMethod : int32_t { kLinear, kRing, kDirect, kDoubling };
constexpr int32_t kAllreduceMethods = 4;

// Whether every element is ((0 + 1) + 2) + ..., by rank, wherever it lies in its message: then no result depends on
// which messages are sent together, nor on which of these collectives sends them. Two operands have one order.
constexpr bool SumsInRankOrder(AllreduceMethod method, int32_t ranks) {
  switch (method) {
    case AllreduceMethod::kRing:
      return ranks <= 2;
    case AllreduceMethod::kDoubling:
      return ranks <= 3;
    default:
      return true;
  }
}

// What should be sent at a time where nothing is known of the network. What says that a block may come waits behind
// blocks that go the same way: a ring's window must cover that, or its links fall idle. Where two ranks have one
// connection for both directions, smaller blocks keep the waiting short. On a chain in one direction nothing waits, and
// the last rank has the first block the sooner.
constexpr int64_t kKiB = 1024;
constexpr int64_t kOneWayBlockBytes = 128 * kKiB;
constexpr int64_t UsualBlockBytes(AllreduceMethod method, int32_t ranks) {
  switch (method) {
    case AllreduceMethod::kLinear:
      return 64 * kKiB;
    case AllreduceMethod::kRing:
      return ranks == 2 ? 128 * kKiB : 512 * kKiB;
    default:
      return 128 * kKiB;
  }
}

// "linear", "ring", "direct" or "doubling". Throws std::invalid_argument for any other name, with the list of them.
AllreduceMethod AllreduceMethodOf(const std::string& name);
const char* NameOf(AllreduceMethod method);

// One of the above; the chain of `linear` ends at the last rank, so that operands meet in the order of ranks.
CollectiveSchedule Allreduce(AllreduceMethod method, Place place, const BlockedMessage& message);

}  // namespace paceline::core

#endif  // PACELINE_CORE_COLLECTIVES_ALGORITHMS_H
