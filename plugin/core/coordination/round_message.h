// What ranks tell each other in a coordination round: bits, and which round they are of.

#ifndef PACELINE_CORE_COORDINATION_ROUND_MESSAGE_H
#define PACELINE_CORE_COORDINATION_ROUND_MESSAGE_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace paceline::core {

enum class BitOperation : uint8_t { kAnd = 1, kOr = 2 };

// Travels byte for byte: only as many words as it has.
struct RoundMessage {
  // Twice what Horovod's cache needs with its 1,024 entries, beside its status bits and a timeline's.
  static constexpr size_t kWords = 64;

  uint64_t sequence = 0;  // of the rounds of a process set
  uint32_t operation = 0;
  uint32_t count = 0;
  std::array<uint64_t, kWords> words{};

  size_t bytes() const { return offsetof(RoundMessage, words) + count * sizeof(uint64_t); }
};

// A message with these words, at most kWords.
RoundMessage MessageOf(uint64_t sequence, BitOperation operation, const uint64_t* words, size_t count);

// Combines what another rank knows into what this one does. False if that is of another round: nothing is combined.
bool Combine(RoundMessage& known, const RoundMessage& received);

// "round 7 (and, 3 words)", for errors.
std::string Text(const RoundMessage& message);

}  // namespace paceline::core

#endif  // PACELINE_CORE_COORDINATION_ROUND_MESSAGE_H
