// What one rank does in one collective, as data: whom it sends which range, what it receives and adds, and in what
// order.

#ifndef PACELINE_CORE_COLLECTIVES_SCHEDULE_H
#define PACELINE_CORE_COLLECTIVES_SCHEDULE_H

#include <array>
#include <cstdint>
#include <vector>

namespace paceline::core {

// A rank among those that take part, both counted in their process set.
struct Place {
  int32_t rank = 0;
  int32_t ranks = 1;
};

// A part of a message, in elements.
struct Shard {
  int64_t offset = 0, count = 0;
};

// The shard of this rank: ranks have parts as equal as can be; the first ones have one element more.
constexpr Shard ShardOf(int64_t elements, Place place) {
  const int64_t least = elements / place.ranks, larger = elements % place.ranks, rank = place.rank;
  return {rank * least + (rank < larger ? rank : larger), least + (rank < larger ? 1 : 0)};
}

// Elements and how they are cut. All ranks must give the same.
struct BlockedMessage {
  int64_t elements = 0;
  int64_t block = 1;  // elements sent at a time, at least 1; may exceed their number
  // So many sends to a rank are under way at once, and so many receives from it, at least 1. What the latency of the
  // network hides behind takes ahead * block; what a receive needs beside the result (encoded bytes) is bounded by it.
  int32_t ahead = 8;
  // So many blocks of scratch memory, at least 2, for what is received before it can be combined, where an algorithm
  // needs no more: as many messages are awaited from a rank at a time.
  int32_t scratch = 8;
};

// The work of one rank. It is done on one buffer, the result, of `elements` elements, and on blocks of scratch memory.
// When the collective begins, the result holds what this rank brings; at its end it holds the result, except that in a
// reduce all ranks but the root are left with what they brought.
//
// An operation may be started when those in `after` are done; all else may happen in any order and at once. No range is
// written while another operation reads or writes it, and no scratch block filled again before it was combined. Two
// ranks list messages between them in the same order, and number it in that order: the n-th message from one to the
// other has tag n on both sides, and the same count. So nothing is lost if receives are started as soon as they may be,
// before the sends that they belong to, nor if they are started late.
struct CollectiveSchedule {
  struct Operation {
    enum class Kind : uint8_t {
      kSend,         // the range of the result, or `scratch` if that is not negative, goes to `peer`
      kReceive,      // the range comes from `peer`: into the result, or into `scratch` if that is not negative
      kCombine,      // the range of the result becomes the reduction of itself and `scratch`
      kCombineAway,  // `scratch` becomes that; the result stays as it is
      kCopy,         // the range is copied into `scratch`
    };

    Kind kind = Kind::kSend;
    // Of both combines: the scratch block is the left operand. Matters where a op b is not b op a, to the last bit:
    // minimum and maximum of NaN and of zeros with different signs.
    bool scratch_first = false;
    // Of a send: all ranks are to go on with the same values, this one, too. An executor that encodes them with loss
    // must put into the range what the receiver will decode. Encoding what was decoded must give the same bytes.
    bool adopt = false;
    int32_t peer = -1;     // of sends and receives
    int32_t tag = -1;      // of sends and receives: unique for this sender and receiver in this collective
    int32_t scratch = -1;  // number of the block; negative: none. The range is at its beginning.
    int64_t offset = 0;    // of the range in the result, in elements
    int64_t count = 0;     // of elements in it, at least 1
    std::array<int32_t, 3> after = {-1, -1, -1};  // numbers of operations before this one; negative: none
  };

  // In an order in which they could be done one after the other on each rank; what is first should be started first.
  std::vector<Operation> operations;
  int32_t scratch_blocks = 0;
  int64_t scratch_count = 0;  // elements of each
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_COLLECTIVES_SCHEDULE_H
