// How values are encoded in our own collectives.

#ifndef PACELINE_CORE_CODECS_CODEC_H
#define PACELINE_CORE_CODECS_CODEC_H

#include <cstdint>
#include <string>
#include <vector>

#include "core/codecs/data_type.h"

namespace paceline::core {

// A codec has no state: equal blocks give equal bytes, on every processor. A block may begin anywhere in a tensor;
// memory of blocks and bytes may be aligned in any way. Numbers lie in the bytes in the processor's own order, as they
// do where no codec is used: all ranks have processors of one byte order.
//
// The bytes of a codec that is not exact do not depend on the type of the block: what one rank encodes from bfloat16
// another can decode into, or add to, float32.
//
// Each slice of a block, 256 elements counted from its beginning, is encoded by itself: the bytes of a block are those
// of its first n elements, followed by those of the others, for every n that is a multiple of kCodecSlice.
inline constexpr int64_t kCodecSlice = 256;

class Codec {
 public:
  Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;
  virtual ~Codec() = default;

  // As users write it: codec="bf16".
  virtual const char* name() const = 0;
  // Why blocks of this type cannot be encoded, and what to use instead; empty if they can.
  virtual std::string Refusal(DataType type) const = 0;
  // Throws the refusal as std::invalid_argument, if there is one. All functions below do.
  void Check(DataType type) const;
  // Whether decoding always gives what was encoded.
  virtual bool exact() const = 0;
  virtual int64_t EncodedBytes(DataType type, int64_t count) const = 0;
  virtual void Encode(DataType type, const void* block, int64_t count, uint8_t* bytes) const = 0;
  virtual void Decode(DataType type, const uint8_t* bytes, int64_t count, void* block) const = 0;
  // block[i] = block[i] op decoded[i]. Types smaller than float32 are computed with in float32 and rounded once.
  virtual void DecodeCombine(DataType type, ReduceOp op, const uint8_t* bytes, int64_t count, void* block) const = 0;
};

// Lives as long as the program. Throws std::invalid_argument that lists the names there are.
const Codec& CodecNamed(const std::string& name);
// By its place in CodecNames(). Throws std::out_of_range.
const Codec& CodecNumbered(int32_t number);
// In the order in which to list them for users.
std::vector<std::string> CodecNames();

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_CODEC_H
