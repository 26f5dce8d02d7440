// No codec: values are sent as they are in memory.

#ifndef PACELINE_CORE_CODECS_NONE_H
#define PACELINE_CORE_CODECS_NONE_H

#include "core/codecs/codec.h"

namespace paceline::core {

class NoCodec final : public Codec {
 public:
  const char* name() const override { return "none"; }
  std::string Refusal(DataType type) const override;
  bool exact() const override { return true; }
  int64_t EncodedBytes(DataType type, int64_t count) const override;
  void Encode(DataType type, const void* block, int64_t count, uint8_t* bytes) const override;
  void Decode(DataType type, const uint8_t* bytes, int64_t count, void* block) const override;
  void DecodeCombine(DataType type, ReduceOp op, const uint8_t* bytes, int64_t count, void* block) const override;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_NONE_H
