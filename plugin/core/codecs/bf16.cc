#include "core/codecs/bf16.h"

#include "core/codecs/convert.h"
#include "core/codecs/elements.h"
#include "core/codecs/vectorised.h"

namespace paceline::core {

namespace {

struct Truncate {
  using Target = Whole<uint16_t>;
  using Source = Whole<float>;
  static uint16_t Of(uint16_t /*old*/, float value) { return Bfloat16TowardZero(value); }
};

}  // namespace

void Bf16Codec::EncodeSlice(const float* values, uint8_t* bytes) const {
  if (rounding_ == Rounding::kNearest) {
    FromFloat(DataType::kBfloat16, values, kCodecSlice, bytes);
  } else {
    RunOver<Truncate>(bytes, reinterpret_cast<const uint8_t*>(values), kCodecSlice);
  }
}

void Bf16Codec::DecodeSlice(const uint8_t* bytes, float* values) const {
  ToFloat(DataType::kBfloat16, bytes, kCodecSlice, values);
}

}  // namespace paceline::core
