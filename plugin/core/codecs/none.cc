#include "core/codecs/none.h"

#include <algorithm>

#include "core/codecs/combine.h"

namespace paceline::core {

std::string NoCodec::Refusal(DataType /*type*/) const { return {}; }

int64_t NoCodec::EncodedBytes(DataType type, int64_t count) const { return count * BytesOf(type); }

void NoCodec::Encode(DataType type, const void* block, int64_t count, uint8_t* bytes) const {
  std::copy_n(static_cast<const uint8_t*>(block), EncodedBytes(type, count), bytes);
}

void NoCodec::Decode(DataType type, const uint8_t* bytes, int64_t count, void* block) const {
  std::copy_n(bytes, EncodedBytes(type, count), static_cast<uint8_t*>(block));
}

void NoCodec::DecodeCombine(DataType type, ReduceOp op, const uint8_t* bytes, int64_t count, void* block) const {
  Combine(type, op, block, bytes, count);
}

}  // namespace paceline::core
