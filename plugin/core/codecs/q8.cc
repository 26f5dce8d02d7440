#include "core/codecs/q8.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/codecs/elements.h"
#include "core/codecs/vectorised.h"

namespace paceline::core {

namespace {

constexpr int32_t kMostCode = 127, kMostFiniteCode = 126, kNanCode = -128;
constexpr int64_t kStepBytes = 4;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Of the step that makes `most` of `greatest`.
float StepFor(float greatest, int32_t most) {
  const auto codes = static_cast<float>(most);
  const float step = std::max(greatest / codes, std::numeric_limits<float>::min());
  // Rounded up, the step of the greatest float32 would decode to infinity.
  return std::isinf(step * codes) ? std::nextafter(step, 0.F) : step;
}

// The bits of the greatest magnitude; those of an infinity or a NaN are greater than those of all numbers. Integers,
// because a maximum of floats must not be computed in another order than is written.
struct GreatestKernel {
  static void Run(const float* values, uint32_t* greatest) {
    uint32_t most = 0;
    for (int64_t i = 0; i < kCodecSlice; ++i) {
      const uint32_t magnitude = BitsOf(values[i]) & half::kMagnitude;
      most = most > magnitude ? most : magnitude;
    }
    *greatest = most;
  }
};

// 1.5 * 2^23 has the lowest bits to spare: added to a small number, they are the nearest integer, of two the even one.
constexpr float kToInteger = 0x1.8p23F;

struct EncodeKernel {
  static void Run(const float* __restrict values, float step, uint8_t* __restrict codes) {
    for (int64_t i = 0; i < kCodecSlice; ++i) {
      codes[i] = static_cast<uint8_t>(BitsOf(values[i] / step + kToInteger));
    }
  }
};

struct DecodeKernel {
  static void Run(const uint8_t* __restrict codes, float step, float* __restrict values) {
    for (int64_t i = 0; i < kCodecSlice; ++i) {
      values[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * step;
    }
  }
};

// With values that are not finite: rare, so element by element.
void EncodeNonFinite(const float* values, uint8_t* bytes) {
  float greatest = 0;
  for (int64_t i = 0; i < kCodecSlice; ++i) {
    greatest = std::isfinite(values[i]) ? std::max(greatest, std::abs(values[i])) : greatest;
  }
  const float step = StepFor(greatest, kMostFiniteCode);
  Store(bytes, 0, -step);
  for (int64_t i = 0; i < kCodecSlice; ++i) {
    int32_t code = kNanCode;
    if (std::isfinite(values[i])) {
      code = static_cast<int32_t>(BitsOf(values[i] / step + kToInteger) - BitsOf(kToInteger));
    } else if (std::isinf(values[i])) {
      code = values[i] > 0 ? kMostCode : -kMostCode;
    }
    bytes[kStepBytes + i] = static_cast<uint8_t>(code);
  }
}

void DecodeNonFinite(const uint8_t* codes, float step, float* values) {
  for (int64_t i = 0; i < kCodecSlice; ++i) {
    const auto code = static_cast<int8_t>(codes[i]);
    if (code == kNanCode) {
      values[i] = std::numeric_limits<float>::quiet_NaN();
    } else if (std::abs(code) == kMostCode) {
      values[i] = code > 0 ? kInfinity : -kInfinity;
    } else {
      values[i] = static_cast<float>(code) * step;
    }
  }
}

}  // namespace

void Q8Codec::EncodeSlice(const float* values, uint8_t* bytes) const {
  uint32_t greatest = 0;
  RunVectorised<GreatestKernel>(values, &greatest);
  if (greatest >= half::kInfinity) {
    return EncodeNonFinite(values, bytes);
  }
  const float step = StepFor(FloatOf(greatest), kMostCode);
  Store(bytes, 0, step);
  RunVectorised<EncodeKernel>(values, step, bytes + kStepBytes);
}

void Q8Codec::DecodeSlice(const uint8_t* bytes, float* values) const {
  const auto step = Load<float>(bytes, 0);
  if (std::signbit(step)) {
    return DecodeNonFinite(bytes + kStepBytes, -step, values);
  }
  RunVectorised<DecodeKernel>(bytes + kStepBytes, step, values);
}

}  // namespace paceline::core
