// The coordination rounds of one process set over a transport of their own: bits of all ranks, combined.

#ifndef PACELINE_BRIDGE_COORDINATION_ROUNDS_H
#define PACELINE_BRIDGE_COORDINATION_ROUNDS_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "bridge/transport.h"
#include "core/coordination/round_message.h"
#include "core/coordination/round_phases.h"

namespace horovod::paceline {

// Receives of the next round are posted before this one is sent: a rank that begins the next finds them, and an idle
// one is woken by what comes. One thread, that of the background.
class Rounds {
 public:
  explicit Rounds(std::unique_ptr<Transport> transport);

  // Whether another rank has begun the next round. Throws gloo::IoException, as all below, if one is lost.
  bool Called();
  // Combines these words of all ranks, in the next round; at most RoundMessage::kWords. The same operation and count on
  // all ranks.
  void Combine(::paceline::core::BitOperation operation, uint64_t* words, size_t count);
  // No rank begins another round: what was posted for it is taken back, connections stay.
  void Leave();

 private:
  using Message = ::paceline::core::RoundMessage;

  struct Told {
    Message message;
    bool here = false;
  };
  // Of one round. Two of them are in use: the one under way, or the last one, and the next.
  struct Slot {
    std::vector<Message> sent;            // by phase
    std::vector<std::vector<Told>> told;  // by phase and place in RoundPhase::from
    size_t sending = 0;                   // sends that go on
  };
  struct Operation {
    Slot* slot = nullptr;
    Told* told = nullptr;  // null: a send
    int32_t peer = 0;
  };

  Slot& SlotOf(uint64_t sequence) { return slots_.at(sequence % slots_.size()); }
  void Post(uint64_t sequence);
  void Send(Slot& slot, size_t phase, const Message& message);
  // Takes what has completed; false: nothing had by then.
  bool Take(Transport::Clock::time_point until);
  // Until that holds; `peer` is who is waited for.
  template <typename Done>
  void Await(int32_t peer, const Done& done);
  [[noreturn]] void Fail(const std::string& why);

  const std::unique_ptr<Transport> transport_;
  const std::vector<::paceline::core::RoundPhase> phases_;
  uint64_t done_ = 0;  // rounds
  std::array<Slot, 2> slots_;
  std::unordered_map<uint64_t, Operation> operations_;  // by the transport's number
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COORDINATION_ROUNDS_H
