// What the collectives of algorithms.h take on a network, and which of them is the fastest for a message.

#ifndef PACELINE_CORE_COLLECTIVES_COLLECTIVE_TIME_H
#define PACELINE_CORE_COLLECTIVES_COLLECTIVE_TIME_H

#include <cstdint>

#include "core/collectives/algorithms.h"

namespace paceline::core {

// Equal hosts, each with one full-duplex card, and a switch between them that is never the limit.
struct Network {
  double alpha_s = 0;           // start-up: of a message between two ranks, from the call until an empty one is there
  double message_s = 0;         // that part of alpha_s, at most all, in which no other message can leave the card
  double beta_s_per_byte = 0;   // of the card, in one direction
  double gamma_s_per_byte = 0;  // to combine
};

// How a message is sent, in bytes; otherwise as BlockedMessage.
struct BlockedBytes {
  double bytes = 0;
  double block_bytes = 1;
  int32_t ahead = 8;
  int32_t scratch = 8;
};

// Predicted seconds from the moment when all ranks begin until the last one has its result. No rank is busy otherwise.
//
// A block of b bytes keeps the card for message_s + b beta, and is there after alpha_s + b beta. Where blocks follow
// each other, combining hides behind the wire, and so does latency (alpha_s - message_s) if enough is under way: a
// receive can be met alpha_s after it is posted, and is posted when the block `ahead` before it is there; with scratch,
// when the block `scratch` before it is combined (`direct`: two before it). With message_s = alpha_s this is what the
// Linear Pipelining paper's table counts, except that the table has one step more and adds the time to combine. For
// `doubling` among numbers of ranks that are no power of two it is the most that it may take. One rank alone takes no
// time.
//
// All throw std::invalid_argument for constants and bytes that are not finite or negative, for message_s > alpha_s, and
// for fewer than one rank, byte in a block or message under way.
double LinearBroadcastTime(const Network& network, int32_t ranks, const BlockedBytes& message);
double LinearReduceTime(const Network& network, int32_t ranks, const BlockedBytes& message);
double AllreduceTime(AllreduceMethod method, const Network& network, int32_t ranks, const BlockedBytes& message);

// Gloo's broadcast, along a binomial tree and undivided, to compare with.
double TreeBroadcastTime(const Network& network, int32_t ranks, double bytes);

// A way to do a collective.
struct TimedChoice {
  AllreduceMethod method = AllreduceMethod::kLinear;
  double block_bytes = 1;  // of `doubling`: the whole message
  double seconds = 0;
};

// The best block, so that the message (of ring and direct: the shard) is cut into 1, 2, 3, 4, 6, 8, 12, ... about equal
// ones, at most 1024 and of at least 4 KiB: a multiple of 64 bytes, which may be more than the message has. Of blocks
// that take the same time, the largest. Rank 0 should decide, and the others be told: a block that differs between
// ranks is an error, and the last bit of a time may differ between machines.
TimedChoice BestLinearBroadcast(const Network& network, int32_t ranks, double bytes, int32_t ahead);
TimedChoice BestLinearReduce(const Network& network, int32_t ranks, double bytes, int32_t ahead);
TimedChoice BestAllreduce(AllreduceMethod method, const Network& network, int32_t ranks, double bytes, int32_t ahead);

// The fastest of all methods, with its best block; of several as fast, the first in the order of AllreduceMethod.
TimedChoice FastestAllreduce(const Network& network, int32_t ranks, double bytes, int32_t ahead);

}  // namespace paceline::core

#endif  // PACELINE_CORE_COLLECTIVES_COLLECTIVE_TIME_H
