#include "core/codecs/bf16.h"

#include "core/codecs/convert.h"
#include "core/codecs/elements.h"
#include "core/codecs/vectorised.h"

namespace paceline::core {

namespace {

struct TruncateKernel {
  static constexpr int64_t kTargetBytes = 2, kSourceBytes = 4;

  static void Run(uint8_t* __restrict target, const uint8_t* __restrict source, int64_t chunks) {
    for (; chunks > 0; --chunks, target += kChunk * kTargetBytes, source += kChunk * kSourceBytes) {
      for (int64_t i = 0; i < kChunk; ++i) {
        Store(target, i, Bfloat16TowardZero(Load<float>(source, i)));
      }
    }
  }
};

}  // namespace

void Bf16Codec::EncodeSlice(const float* values, uint8_t* bytes) const {
  if (rounding_ == Rounding::kNearest) {
    FromFloat(DataType::kBfloat16, values, kCodecSlice, bytes);
  } else {
    RunOver<TruncateKernel>(bytes, reinterpret_cast<const uint8_t*>(values), kCodecSlice);
  }
}

void Bf16Codec::DecodeSlice(const uint8_t* bytes, float* values) const {
  ToFloat(DataType::kBfloat16, bytes, kCodecSlice, values);
}

}  // namespace paceline::core
