#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

#include "codecs/values.h"
#include "core/codecs/convert.h"
#include "core/codecs/elements.h"
#include "doctest/doctest.h"

using namespace paceline::core;

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
