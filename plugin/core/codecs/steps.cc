#include "core/codecs/steps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/codecs/elements.h"
#include "core/codecs/vectorised.h"

namespace paceline::core {

namespace {

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

// Two codes to a byte.
struct PackKernel {
  static void Run(const uint8_t* __restrict codes, uint8_t* __restrict packed) {
    for (int64_t i = 0; i < kCodecSlice / 2; ++i) {
      packed[i] = static_cast<uint8_t>((uint32_t{codes[2 * i]} & 0xFU) | (uint32_t{codes[2 * i + 1]} << 4U));
    }
  }
};

struct UnpackKernel {
  static void Run(const uint8_t* __restrict packed, uint8_t* __restrict codes) {
    for (int64_t i = 0; i < kCodecSlice / 2; ++i) {
      // With its highest bit flipped and 8 less, a half of a byte has its sign.
      codes[2 * i] = static_cast<uint8_t>(((uint32_t{packed[i]} & 0xFU) ^ 8U) - 8U);
      codes[2 * i + 1] = static_cast<uint8_t>(((uint32_t{packed[i]} >> 4U) ^ 8U) - 8U);
    }
  }
};

// With values that are not finite: rare, so element by element. Returns the step.
float EncodeNonFinite(const float* values, int32_t most, uint8_t* codes) {
  float greatest = 0;
  for (int64_t i = 0; i < kCodecSlice; ++i) {
    greatest = std::isfinite(values[i]) ? std::max(greatest, std::abs(values[i])) : greatest;
  }
  const float step = StepFor(greatest, most - 1);
  for (int64_t i = 0; i < kCodecSlice; ++i) {
    int32_t code = -(most + 1);
    if (std::isfinite(values[i])) {
      code = static_cast<int32_t>(BitsOf(values[i] / step + kToInteger) - BitsOf(kToInteger));
    } else if (std::isinf(values[i])) {
      code = values[i] > 0 ? most : -most;
    }
    codes[i] = static_cast<uint8_t>(code);
  }
  return -step;
}

void DecodeNonFinite(const uint8_t* codes, int32_t most, float step, float* values) {
  for (int64_t i = 0; i < kCodecSlice; ++i) {
    const auto code = static_cast<int8_t>(codes[i]);
    if (code == -(most + 1)) {
      values[i] = std::numeric_limits<float>::quiet_NaN();
    } else if (std::abs(code) == most) {
      values[i] = code > 0 ? kInfinity : -kInfinity;
    } else {
      values[i] = static_cast<float>(code) * step;
    }
  }
}

}  // namespace

template <int kBits>
void StepCodec<kBits>::EncodeSlice(const float* values, uint8_t* bytes) const {
  constexpr int32_t kMost = kBits == 8 ? 127 : 7;
  constexpr bool kPacked = kBits < 8;
  std::array<uint8_t, kPacked ? kCodecSlice : 1> unpacked;
  uint8_t* const codes = kPacked ? unpacked.data() : bytes + kStepBytes;
  uint32_t greatest = 0;
  RunVectorised<GreatestKernel>(values, &greatest);
  float step = 0;
  if (greatest >= half::kInfinity) {
    step = EncodeNonFinite(values, kMost, codes);
  } else {
    step = StepFor(FloatOf(greatest), kMost);
    RunVectorised<EncodeKernel>(values, step, codes);
  }
  Store(bytes, 0, step);
  if constexpr (kPacked) {
    RunVectorised<PackKernel>(static_cast<const uint8_t*>(codes), bytes + kStepBytes);
  }
}

template <int kBits>
void StepCodec<kBits>::DecodeSlice(const uint8_t* bytes, float* values) const {
  constexpr int32_t kMost = kBits == 8 ? 127 : 7;
  constexpr bool kPacked = kBits < 8;
  std::array<uint8_t, kPacked ? kCodecSlice : 1> unpacked;
  const uint8_t* codes = bytes + kStepBytes;
  if constexpr (kPacked) {
    RunVectorised<UnpackKernel>(codes, unpacked.data());
    codes = unpacked.data();
  }
  const auto step = Load<float>(bytes, 0);
  if (std::signbit(step)) {
    return DecodeNonFinite(codes, kMost, -step, values);
  }
  RunVectorised<DecodeKernel>(codes, step, values);
}

template class StepCodec<8>;
template class StepCodec<4>;

}  // namespace paceline::core
