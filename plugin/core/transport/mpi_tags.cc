#include "core/transport/mpi_tags.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace paceline::core {

namespace {

constexpr uint32_t kFewestCollectiveBits = 4;

}  // namespace

MpiTags::MpiTags(int32_t highest) {
  uint32_t bits = 0;
  while (uint64_t{2} << bits <= static_cast<uint64_t>(highest)) {
    ++bits;
  }
  const auto collective_bits = std::max(bits / 4, kFewestCollectiveBits);
  slots_.resize(size_t{1} << collective_bits);
  messages_ = static_cast<int32_t>(uint32_t{1} << (bits - collective_bits));
}

int32_t MpiTags::Begin(uint64_t collective, uint64_t message) {
  if (message >= static_cast<uint64_t>(messages_)) {
    throw std::runtime_error("this MPI has tags for " + std::to_string(messages_) +
                             " messages between two ranks in a collective, and there are more. Set "
                             "collective_block_bytes of PACELINE_DEBUG higher, the same on all ranks.");
  }
  auto& slot = SlotOf(collective);
  if (slot.under_way > 0 && slot.collective != collective) {
    throw std::runtime_error("this MPI has tags for " + std::to_string(slots_.size()) +
                             " collectives at a time, and number " + std::to_string(collective) +
                             " is to begin before number " + std::to_string(slot.collective) + " has ended.");
  }
  slot.collective = collective;
  ++slot.under_way;
  return static_cast<int32_t>(collective % slots_.size()) * messages_ + static_cast<int32_t>(message);
}

void MpiTags::End(uint64_t collective) { --SlotOf(collective).under_way; }

}  // namespace paceline::core
