#include "core/coordination/round_message.h"

#include <algorithm>

namespace paceline::core {

RoundMessage MessageOf(uint64_t sequence, BitOperation operation, const uint64_t* words, size_t count) {
  RoundMessage message;
  message.sequence = sequence;
  message.operation = static_cast<uint32_t>(operation);
  message.count = static_cast<uint32_t>(std::min(count, RoundMessage::kWords));
  std::copy_n(words, message.count, message.words.begin());
  return message;
}

bool Combine(RoundMessage& known, const RoundMessage& received) {
  if (known.sequence != received.sequence || known.operation != received.operation || known.count != received.count) {
    return false;
  }
  const bool both = known.operation == static_cast<uint32_t>(BitOperation::kAnd);
  for (size_t n = 0; n < known.count; ++n) {
    known.words[n] = both ? known.words[n] & received.words[n] : known.words[n] | received.words[n];
  }
  return true;
}

std::string Text(const RoundMessage& message) {
  const bool both = message.operation == static_cast<uint32_t>(BitOperation::kAnd);
  return "round " + std::to_string(message.sequence) + " (" + (both ? "and" : "or") + ", " +
         std::to_string(message.count) + " words)";
}

}  // namespace paceline::core
