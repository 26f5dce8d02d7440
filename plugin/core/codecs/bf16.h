// Codec bf16: two bytes for each value, a bfloat16.

#ifndef PACELINE_CORE_CODECS_BF16_H
#define PACELINE_CORE_CODECS_BF16_H

#include "core/codecs/float_codec.h"

namespace paceline::core {

// Rounds to the nearest bfloat16: a relative error of at most 2^-8, where the value is not subnormal. Magnitudes of
// 2^128 (1 - 2^-9) and more become infinite.
//
// NaN stays NaN and infinities stay infinities. Values that a bfloat16 can hold come back exactly.
class Bf16Codec final : public FloatCodec {
 public:
  const char* name() const override { return "bf16"; }

 protected:
  int64_t SliceBytes(int64_t count) const override { return 2 * count; }
  void EncodeSlice(const float* values, uint8_t* bytes) const override;
  void DecodeSlice(const uint8_t* bytes, float* values) const override;
  bool Pays(DataType type) const override { return type != DataType::kFloat16; }
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_BF16_H
