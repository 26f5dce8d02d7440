// The coordination rounds of one process set over a transport of their own: bits of all ranks, combined.

#ifndef PACELINE_BRIDGE_COORDINATION_ROUNDS_H
#define PACELINE_BRIDGE_COORDINATION_ROUNDS_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bridge/coordination/posts.h"
#include "bridge/transport.h"
#include "core/coordination/round_message.h"
#include "core/coordination/round_phases.h"

namespace horovod::paceline {

// Receives of the next round are posted before this one is sent: a rank that begins the next finds them, and an idle
// one is woken by what comes. One thread, that of the background; all throw as Posts.
class Rounds {
 public:
  explicit Rounds(std::unique_ptr<Transport> transport);

  // Whether another rank has begun the next round.
  bool Called();
  // Combines these words of all ranks, in the next round; at most RoundMessage::kWords. The same operation and count on
  // all ranks.
  void Combine(::paceline::core::BitOperation operation, uint64_t* words, size_t count);
  // No rank begins another round.
  void Leave();

 private:
  using Message = ::paceline::core::RoundMessage;

  struct Received {
    Message message;
    size_t coming = 0;  // 1 until it is here
  };
  // Of one round. Two of them are in use: the one under way, or the last one, and the next.
  struct Slot {
    std::vector<Message> sent;                    // by phase
    std::vector<std::vector<Received>> received;  // by phase and place in RoundPhase::from
    size_t sending = 0;
  };

  Slot& SlotOf(uint64_t sequence) { return slots_.at(sequence % slots_.size()); }
  void Post(uint64_t sequence);
  void AwaitSent(Slot& slot);

  uint64_t done_ = 0;  // rounds
  std::array<Slot, 2> slots_;
  Posts posts_;  // ends before the memory that it receives into
  const std::vector<::paceline::core::RoundPhase> phases_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COORDINATION_ROUNDS_H
