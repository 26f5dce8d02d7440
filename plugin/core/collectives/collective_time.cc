#include "core/collectives/collective_time.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/arguments.h"

namespace paceline::core {

namespace {

constexpr double kSmallestBlockBytes = 4096, kGrainBytes = 64;
// More gain nothing: a chain or ring is filled in p - 2 of them.
constexpr double kMostBlocks = 1024;

// What times of collectives are made of, for a message or shard in blocks of one size.
class Steps {
 public:
  Steps(const Network& network, int32_t ranks, const BlockedBytes& message, double part_bytes)
      : alpha_s_(network.alpha_s),
        latency_s_(network.alpha_s - network.message_s),
        ahead_(message.ahead),
        scratch_(std::min(message.scratch, message.ahead)),
        others_(ranks - 1),
        block_bytes_(std::max(std::min(message.block_bytes, part_bytes), 1.0)),
        blocks_(part_bytes / block_bytes_),
        card_s_(network.message_s + block_bytes_ * network.beta_s_per_byte),
        combine_s_(block_bytes_ * network.gamma_s_per_byte) {}

  double blocks() const { return blocks_; }
  double others() const { return others_; }  // ranks
  double latency() const { return latency_s_; }
  double card() const { return card_s_; }
  double combine() const { return combine_s_; }
  // From the call until the block is there, and also until it is combined.
  double hop() const { return latency_s_ + card_s_; }
  double hop_combined() const { return hop() + combine_s_; }

  // Until all other blocks have followed the first one between two ranks, into the result or into scratch blocks.
  // A card has `sends` of them to send, and a processor so many to combine, for each of these.
  double Follow(double sends = 1) const {
    return Others(sends * card_s_, ahead_, alpha_s_ + latency_s_ + sends * card_s_);
  }
  double FollowCombined(double sends = 1) const {
    return Others(sends * std::max(card_s_, combine_s_), scratch_,
                  alpha_s_ + latency_s_ + sends * (card_s_ + combine_s_));
  }
  // From one block to the next in a long row of them.
  double next() const { return std::max(card_s_, (alpha_s_ + hop()) / ahead_); }
  double next_combined() const { return std::max({card_s_, combine_s_, (alpha_s_ + hop_combined()) / scratch_}); }

 private:
  // One every `each_s`, but from the `room`-th on as soon as there is room again, `again_s` after a block before it
  // began.
  double Others(double each_s, double room, double again_s) const {
    const double count = std::max(blocks_ - 1, 0.0), turns = std::floor(count / room);
    return std::max(count * each_s, turns * again_s + (count - turns * room) * each_s);
  }

  double alpha_s_, latency_s_;
  double ahead_, scratch_, others_, block_bytes_, blocks_, card_s_, combine_s_;
};

void Check(const Network& network, int32_t ranks, const BlockedBytes& message) {
  RequireNotNegative("alpha", network.alpha_s);
  RequireNotNegative("the time of a message", network.message_s);
  RequireNotNegative("beta", network.beta_s_per_byte);
  RequireNotNegative("gamma", network.gamma_s_per_byte);
  RequireNotNegative("the size of a message", message.bytes);
  RequireNotNegative("the size of a block", message.block_bytes);
  if (network.message_s > network.alpha_s) {
    throw std::invalid_argument("the time of a message is part of alpha; " + std::to_string(network.message_s) +
                                " s are more than " + std::to_string(network.alpha_s) + " s");
  }
  if (ranks < 1 || message.block_bytes < 1 || message.ahead < 1 || message.scratch < 1) {
    throw std::invalid_argument(
        "a collective needs at least one rank, a byte in a block and a message under way, not " +
        std::to_string(ranks) + ", " + std::to_string(message.block_bytes) + " and " + std::to_string(message.ahead));
  }
}

bool Nothing(int32_t ranks, const BlockedBytes& message) { return ranks == 1 || message.bytes == 0; }

double RingTime(const Steps& step) {
  // From one shard to the next: as many blocks as it has, or until its first block comes round.
  const double reducing = std::max(step.blocks() * step.next_combined(), step.hop_combined());
  const double gathering = std::max(step.blocks() * step.next(), step.hop());
  return step.others() * reducing + (step.others() - 1) * gathering + step.hop() + step.Follow();
}

double DirectTime(const Steps& step) {
  // A block of every shard at a time. The last one to arrive may be rank 0's, which all others wait for.
  const double out =
      step.latency() + step.others() * (step.card() + step.combine()) + step.FollowCombined(step.others());
  return out + step.latency() + step.others() * step.card() + step.Follow(step.others());
}

double LinearAllreduceTime(const Steps& step) {
  // Ranks within the chain send every block twice.
  const double sends = step.others() > 1 ? 2 : 1;
  return step.others() * (step.hop_combined() + step.hop()) + std::max(step.Follow(sends), step.FollowCombined());
}

double DoublingTime(const Network& network, int32_t ranks, double bytes) {
  const double move_s = network.alpha_s + bytes * network.beta_s_per_byte, add_s = bytes * network.gamma_s_per_byte;
  int32_t core = 1, rounds = 0;
  for (; core <= ranks / 2; core *= 2) {
    ++rounds;
  }
  return rounds * (move_s + add_s) + (core < ranks ? 2 * move_s + add_s : 0);
}

// `time` of the best block for a part of `part_bytes` bytes.
template <typename Time>
TimedChoice BestBlock(AllreduceMethod method, double part_bytes, const Time& time) {
  // A little more than an n-th of it: shards may differ by an element, which should not make a block of its own.
  const auto block = [part_bytes](double n) { return kGrainBytes * (std::floor(part_bytes / n / kGrainBytes) + 1); };
  TimedChoice best{method, block(1), time(block(1))};
  const auto most = static_cast<uint64_t>(std::min(part_bytes / kSmallestBlockBytes, kMostBlocks));
  for (uint64_t n = 2; n <= most; n = (n & (n - 1)) == 0 ? n / 2 * 3 : n / 3 * 4) {  // 2, 3, 4, 6, 8, 12, 16, ...
    const double size = block(static_cast<double>(n)), seconds = time(size);
    if (seconds < best.seconds) {
      best.block_bytes = size;
      best.seconds = seconds;
    }
  }
  return best;
}

}  // namespace

double LinearBroadcastTime(const Network& network, int32_t ranks, const BlockedBytes& message) {
  Check(network, ranks, message);
  if (Nothing(ranks, message)) {
    return 0;
  }
  const Steps step(network, ranks, message, message.bytes);
  return step.others() * step.hop() + step.Follow();
}

double LinearReduceTime(const Network& network, int32_t ranks, const BlockedBytes& message) {
  Check(network, ranks, message);
  if (Nothing(ranks, message)) {
    return 0;
  }
  const Steps step(network, ranks, message, message.bytes);
  return step.others() * step.hop_combined() + step.FollowCombined();
}

double AllreduceTime(AllreduceMethod method, const Network& network, int32_t ranks, const BlockedBytes& message) {
  Check(network, ranks, message);
  if (Nothing(ranks, message)) {
    return 0;
  }
  switch (method) {
    case AllreduceMethod::kLinear:
      return LinearAllreduceTime(Steps(network, ranks, message, message.bytes));
    case AllreduceMethod::kRing:
      return RingTime(Steps(network, ranks, message, message.bytes / ranks));
    case AllreduceMethod::kDirect:
      return DirectTime(
          Steps(network, ranks, {message.bytes, message.block_bytes, message.ahead, 2}, message.bytes / ranks));
    case AllreduceMethod::kDoubling:
      return DoublingTime(network, ranks, message.bytes);
  }
  throw std::invalid_argument("no such allreduce method");
}

double TreeBroadcastTime(const Network& network, int32_t ranks, double bytes) {
  Check(network, ranks, {bytes});
  const double rounds = bytes == 0 ? 0 : std::ceil(std::log2(ranks));
  return rounds * (network.alpha_s + bytes * network.beta_s_per_byte);
}

TimedChoice BestLinearBroadcast(const Network& network, int32_t ranks, double bytes, int32_t ahead) {
  return BestBlock(AllreduceMethod::kLinear, bytes,
                   [&](double block) { return LinearBroadcastTime(network, ranks, {bytes, block, ahead}); });
}

TimedChoice BestLinearReduce(const Network& network, int32_t ranks, double bytes, int32_t ahead) {
  return BestBlock(AllreduceMethod::kLinear, bytes,
                   [&](double block) { return LinearReduceTime(network, ranks, {bytes, block, ahead}); });
}

TimedChoice BestAllreduce(AllreduceMethod method, const Network& network, int32_t ranks, double bytes, int32_t ahead) {
  const auto time = [&](double block) { return AllreduceTime(method, network, ranks, {bytes, block, ahead}); };
  switch (method) {
    case AllreduceMethod::kLinear:
      return BestBlock(method, bytes, time);
    case AllreduceMethod::kRing:
    case AllreduceMethod::kDirect:
      return BestBlock(method, bytes / std::max(ranks, 1), time);
    case AllreduceMethod::kDoubling:
      return {method, std::max(bytes, 1.0), time(std::max(bytes, 1.0))};
  }
  throw std::invalid_argument("no such allreduce method");
}

TimedChoice FastestAllreduce(const Network& network, int32_t ranks, double bytes, int32_t ahead) {
  TimedChoice fastest = BestAllreduce(AllreduceMethod::kLinear, network, ranks, bytes, ahead);
  for (const auto method : {AllreduceMethod::kRing, AllreduceMethod::kDirect, AllreduceMethod::kDoubling}) {
    const TimedChoice choice = BestAllreduce(method, network, ranks, bytes, ahead);
    if (choice.seconds < fastest.seconds) {
      fastest = choice;
    }
  }
  return fastest;
}

}  // namespace paceline::core
