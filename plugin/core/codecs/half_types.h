// float16 (IEEE 754 binary16) and bfloat16 (the upper half of a float32), from and to float32.

#ifndef PACELINE_CORE_CODECS_HALF_TYPES_H
#define PACELINE_CORE_CODECS_HALF_TYPES_H

#include <cstdint>
#include <cstring>

namespace paceline::core {

// Infinities stay infinities, a NaN stays a NaN of the same sign and becomes quiet, subnormal numbers are numbers. What
// is too large for a rounding to nearest becomes infinite, as IEEE 754 has it.
//
// No branches and no operation on subnormal float32: loops over these become vector instructions, and a processor
// that was told to flush subnormal numbers to zero (torch.set_flush_denormal) still converts all of float16.

inline uint32_t BitsOf(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float FloatOf(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

namespace half {

inline constexpr uint32_t kSign = 0x80000000, kMagnitude = 0x7fffffff;  // of float32
inline constexpr uint32_t kInfinity = 0x7f800000, kQuiet = 0x00400000;

// `yes` if a < b, both below 2^31. Arithmetic, because a comparison would become a branch: compilers move the
// computation of an operand into it, and then vectorise nothing that could raise a floating-point exception there.
inline uint32_t IfBelow(uint32_t a, uint32_t b, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0 - ((a - b) >> 31U);
  return (yes & mask) | (no & ~mask);
}

}  // namespace half

inline float FloatFromBfloat16(uint16_t half) { return FloatOf(uint32_t{half} << 16U); }

// The nearest, of two equally near the one whose last bit is 0.
inline uint16_t Bfloat16FromFloat(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16U) & 1U);
  return static_cast<uint16_t>(half::IfBelow(half::kInfinity, bits & half::kMagnitude, bits | half::kQuiet, rounded) >>
                               16U);
}

inline float FloatFromFloat16(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffU;
  // Exponents are biased by 15 there and by 127 here; all ones become all ones.
  const uint32_t rebias = half::IfBelow(magnitude, 0x7c00, 112U << 23U, 2 * 112U << 23U);
  const uint32_t quiet = half::IfBelow(0x7c00, magnitude, half::kQuiet, 0);
  const uint32_t normal = ((magnitude << 13U) + rebias) | quiet;
  // 2^-24, the step of subnormal numbers there, is a normal number here.
  const uint32_t subnormal = BitsOf(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F);
  return FloatOf((half & 0x8000U) << 16U | half::IfBelow(magnitude, 0x0400, subnormal, normal));
}

// The nearest, of two equally near the one whose last bit is 0.
inline uint16_t Float16FromFloat(float value) {
  const uint32_t bits = BitsOf(value), magnitude = bits & half::kMagnitude;
  const uint32_t normal = (magnitude - (112U << 23U) + 0xfff + ((magnitude >> 13U) & 1U)) >> 13U;
  // The last bit of a number from 0.5 to 1 counts 2^-24, so this sum is rounded as a subnormal number must be.
  const uint32_t subnormal = BitsOf(FloatOf(magnitude) + 0.5F) - BitsOf(0.5F);
  const uint32_t nan = 0x7e00U | ((magnitude >> 13U) & 0x3ffU);
  const uint32_t finite = half::IfBelow(magnitude, BitsOf(0x1p-14F), subnormal, normal);
  const uint32_t number = half::IfBelow(magnitude, BitsOf(65520.F), finite, 0x7c00);  // 65520 is rounded up to 65536
  return static_cast<uint16_t>((bits & half::kSign) >> 16U | half::IfBelow(half::kInfinity, magnitude, nan, number));
}

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_HALF_TYPES_H
