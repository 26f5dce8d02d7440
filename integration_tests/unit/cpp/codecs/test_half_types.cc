#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <stdexcept>
#include <vector>

#include "codecs/values.h"
#include "core/codecs/convert.h"
#include "core/codecs/elements.h"
#include "core/codecs/half_types.h"
#include "doctest/doctest.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

using namespace paceline::core;

namespace {

// IEEE 754: a sign, `exponent_bits` of exponent, the rest of the 16 bits mantissa; NaN as NaN.
double Meaning(uint16_t half, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (half & 0x7fff) >> mantissa_bits, mantissa = half & ((1 << mantissa_bits) - 1);
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::nan("") : sign * INFINITY;
  }
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                         : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
  return sign * magnitude;
}

struct Format {
  const char* name;
  int exponent_bits;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
};
const Format kFormats[] = {{"float16", 5, FloatFromFloat16, Float16FromFloat},
                           {"bfloat16", 8, FloatFromBfloat16, Bfloat16FromFloat}};

}  // namespace

TEST_CASE("all 65536 patterns mean what IEEE 754 says and come back as they were; a NaN as a NaN of its sign") {
  for (const Format& format : kFormats) {
    CAPTURE(format.name);
    for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
      CAPTURE(pattern);
      const auto half = static_cast<uint16_t>(pattern);
      const double meaning = Meaning(half, format.exponent_bits);
      const float wide = format.widen(half);
      const uint16_t back = format.narrow(wide);
      if (std::isnan(meaning)) {
        REQUIRE(std::isnan(wide));
        REQUIRE(std::isnan(Meaning(back, format.exponent_bits)));
        REQUIRE((back & 0x8000) == (half & 0x8000));
      } else {
        REQUIRE(static_cast<double>(wide) == meaning);
        REQUIRE(std::signbit(wide) == std::signbit(meaning));
        REQUIRE(back == half);
      }
    }
  }
}

TEST_CASE("between any two neighbours the nearer is taken, and half-way the even one; beyond the last, infinity") {
  for (const Format& format : kFormats) {
    CAPTURE(format.name);
    const auto infinity = static_cast<uint32_t>(((1 << format.exponent_bits) - 1) << (15 - format.exponent_bits));
    for (uint32_t pattern = 0; pattern < infinity; ++pattern) {
      CAPTURE(pattern);
      const auto half = static_cast<uint16_t>(pattern);
      const double low = Meaning(half, format.exponent_bits);
      // What would follow the last finite number if exponents went on.
      const double high = pattern + 1 < infinity
                              ? Meaning(static_cast<uint16_t>(pattern + 1), format.exponent_bits)
                              : low + (low - Meaning(static_cast<uint16_t>(pattern - 1), format.exponent_bits));
      const auto middle = static_cast<float>((low + high) / 2);
      REQUIRE(static_cast<double>(middle) == (low + high) / 2);
      const auto even = static_cast<uint16_t>(pattern % 2 == 0 ? pattern : pattern + 1);
      for (const uint16_t sign : {uint16_t{0}, uint16_t{0x8000}}) {
        const float signed_middle = sign != 0 ? -middle : middle;
        REQUIRE(format.narrow(signed_middle) == (even | sign));
        REQUIRE(format.narrow(std::nextafter(signed_middle, 0.F)) == (half | sign));
        const float above = std::nextafter(signed_middle, sign != 0 ? -INFINITY : INFINITY);
        REQUIRE(format.narrow(above) == ((pattern + 1) | sign));
      }
    }
  }
}

TEST_CASE("a NaN stays a NaN wherever its bits are") {
  for (const uint32_t sign : {0U, 0x80000000U}) {
    for (int bit = 0; bit < 23; ++bit) {
      const float nan = FloatOf(sign | 0x7f800000U | 1U << bit);
      const uint16_t half = Bfloat16FromFloat(nan);
      CHECK(std::isnan(Meaning(half, 8)));
      CHECK((half & 0x8000U) == sign >> 16);
      CHECK(std::isnan(Meaning(Float16FromFloat(nan), 5)));
    }
    // Rounding its bits up as if they were a number would make it 0.
    CHECK(std::isnan(Meaning(Bfloat16FromFloat(FloatOf(sign | 0x7fffffffU)), 8)));
  }
}

TEST_CASE("float32 beyond float16 in either direction") {
  CHECK(Float16FromFloat(1e-30F) == 0);
  CHECK(Float16FromFloat(-1e-40F) == 0x8000);
  CHECK(Float16FromFloat(1e30F) == 0x7c00);
  CHECK(Float16FromFloat(-3e38F) == 0xfc00);
  CHECK(BitsOf(FloatFromFloat16(1)) == BitsOf(0x1p-24F));
}

#if defined(__SSE__)
TEST_CASE(
    "float16 is converted whole, its subnormal numbers too, where the processor flushes those of float32 to zero") {
  constexpr uint32_t kFlushResults = 0x8000, kFlushOperands = 0x0040;
  // Read anew for each call, so that no computation moves out from between the two settings.
  float (*volatile widen)(uint16_t) = FloatFromFloat16;
  uint16_t (*volatile narrow)(float) = Float16FromFloat;
  const uint32_t before = _mm_getcsr();
  uint32_t wrong = 0;
  for (uint32_t pattern = 0; pattern < 0x7c00; ++pattern) {
    const double meaning = Meaning(static_cast<uint16_t>(pattern), 5);
    _mm_setcsr(before | kFlushResults | kFlushOperands);
    const float wide = widen(static_cast<uint16_t>(pattern));
    const uint16_t back = narrow(wide);
    _mm_setcsr(before);
    wrong += static_cast<double>(wide) != meaning || back != pattern ? 1 : 0;
  }
  CHECK(wrong == 0);
}
#endif

TEST_CASE("blocks of float16 are converted bit for bit as single ones are, also by the processor's own instructions") {
  Block halves(2 * 65536);
  for (int64_t i = 0; i < 65536; ++i) {
    Store(halves.data(), i, static_cast<uint16_t>(i));
  }
  const std::vector<float> values = halves.Values(DataType::kFloat16);
  for (size_t i = 0; i < values.size(); ++i) {
    REQUIRE(BitsOf(values[i]) == BitsOf(FloatFromFloat16(static_cast<uint16_t>(i))));
  }
  // Of every exponent, and so NaN and subnormal numbers too.
  std::mt19937 random(19);
  std::vector<float> floats(1 << 20);
  for (float& value : floats) {
    value = FloatOf(static_cast<uint32_t>(random()));
  }
  Block narrow(DataType::kFloat16, floats);
  uint32_t wrong = 0;
  for (size_t i = 0; i < floats.size(); ++i) {
    wrong += Load<uint16_t>(narrow.data(), static_cast<int64_t>(i)) != Float16FromFloat(floats[i]) ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("any number of elements is converted, and nothing beyond them is written") {
  for (const DataType type : kFloatTypes) {
    for (const int64_t count : kCounts) {
      CAPTURE(NameOf(type));
      CAPTURE(count);
      std::vector<float> small(static_cast<size_t>(count));
      for (size_t i = 0; i < small.size(); ++i) {
        small[i] = static_cast<float>(i % 256) - 128;  // what every type can hold
      }
      Block block(type, small);
      CHECK_FALSE(block.overrun());
      CHECK(block.Values(type) == small);
    }
  }
}

TEST_CASE("float64 is rounded to the nearest float32, and becomes infinite beyond") {
  const std::vector<double> values = {1 + 0x1p-25, 1 + 0x1.8p-24, -1e300, 1e-60};
  std::vector<float> floats(values.size());
  ToFloat(DataType::kFloat64, values.data(), 4, floats.data());
  CHECK(floats == std::vector<float>{1, 1 + 0x1p-23F, -kInf, 0});
}

TEST_CASE("integers are not converted") {
  int32_t integer = 1;
  float value = 1;
  CHECK_THROWS_WITH_AS(ToFloat(DataType::kInt32, &integer, 1, &value), "int32 is no floating-point type",
                       std::invalid_argument);
  CHECK_THROWS_AS(FromFloat(DataType::kBool, &value, 1, &integer), std::invalid_argument);
}
