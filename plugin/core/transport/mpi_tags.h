// MPI's tags for messages of collectives.

#ifndef PACELINE_CORE_TRANSPORT_MPI_TAGS_H
#define PACELINE_CORE_TRANSPORT_MPI_TAGS_H

#include <cstdint>
#include <vector>

namespace paceline::core {

// An MPI library has tags from 0 to a highest one: 32767 is what the standard promises, 2^31 - 1 and 2^23 - 1 are
// usual. Collectives and messages are counted without end. A tag is made of a message's number in its collective, and
// of the collective's number modulo `collectives()`: a quarter of the bits, so that large messages have many blocks.
//
// Between two ranks MPI keeps messages with one tag in the order in which they were sent and their receives posted. A
// collective's tags come again only with one that begins after it has ended, on every rank, so in the same order at
// both ends of a connection: nothing is taken for something else, however far one rank is ahead of another.
class MpiTags {
 public:
  // `highest` tag of the library.
  explicit MpiTags(int32_t highest);

  // So many collectives can be under way, with so many messages from one rank to another each.
  int32_t collectives() const { return static_cast<int32_t>(slots_.size()); }
  int32_t messages() const { return messages_; }

  // The tag of a message that is about to be under way on this rank. Throws std::runtime_error that says what there is
  // too much of.
  int32_t Begin(uint64_t collective, uint64_t message);
  // It is not any more.
  void End(uint64_t collective);

  // A tag that no message of a collective has.
  int32_t other() const { return collectives() * messages_; }

 private:
  struct Slot {
    uint64_t collective = 0;
    int64_t under_way = 0;
  };

  Slot& SlotOf(uint64_t collective) { return slots_[collective % slots_.size()]; }

  int32_t messages_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_TRANSPORT_MPI_TAGS_H
