#include "core/codecs/bf16.h"

#include "core/codecs/convert.h"

namespace paceline::core {

void Bf16Codec::EncodeSlice(const float* values, uint8_t* bytes) const {
  FromFloat(DataType::kBfloat16, values, kCodecSlice, bytes);
}

void Bf16Codec::DecodeSlice(const uint8_t* bytes, float* values) const {
  ToFloat(DataType::kBfloat16, bytes, kCodecSlice, values);
}

}  // namespace paceline::core
