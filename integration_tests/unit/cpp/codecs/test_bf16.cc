#include <algorithm>
#include <cmath>
#include <vector>

#include "codecs/values.h"
#include "core/codecs/codec.h"
#include "core/codecs/half_types.h"
#include "doctest/doctest.h"

using paceline::core::CodecNamed;
using paceline::core::DataType;

namespace {

std::vector<float> RoundTrip(const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<uint8_t> bytes(static_cast<size_t>(2 * count));
  std::vector<float> decoded(values.size());
  CodecNamed("bf16").Encode(DataType::kFloat32, values.data(), count, bytes.data());
  CodecNamed("bf16").Decode(DataType::kFloat32, bytes.data(), count, decoded.data());
  return decoded;
}

// Steps of bfloat16 are 2^-133 where it is subnormal.
double Bound(float value, double relative) { return std::max(std::abs(double{value}), 0x1p-126) * relative; }

}  // namespace

TEST_CASE("bf16 errs by at most 2^-8") {
  for (const int64_t count : kCounts) {
    for (const auto& [family, values] : Families(count)) {
      CAPTURE(count);
      CAPTURE(family);
      const std::vector<float> nearest = RoundTrip(values);
      for (size_t i = 0; i < values.size(); ++i) {
        CAPTURE(values[i]);
        if (std::abs(values[i]) < 0x1.ffp127F) {
          REQUIRE(std::abs(double{nearest[i]} - values[i]) <= Bound(values[i], 0x1p-8));
        } else {
          REQUIRE(nearest[i] == std::copysign(kInf, values[i]));
        }
      }
    }
  }
}

TEST_CASE("all that a bfloat16 can hold comes back exactly; infinities and NaN are among it") {
  std::vector<float> values(65536);
  for (size_t pattern = 0; pattern < values.size(); ++pattern) {
    values[pattern] = paceline::core::FloatFromBfloat16(static_cast<uint16_t>(pattern));
  }
  const std::vector<float> decoded = RoundTrip(values);
  for (size_t pattern = 0; pattern < values.size(); ++pattern) {
    CAPTURE(pattern);
    if (std::isnan(values[pattern])) {
      REQUIRE(std::isnan(decoded[pattern]));
    } else {
      REQUIRE(paceline::core::BitsOf(decoded[pattern]) == paceline::core::BitsOf(values[pattern]));
    }
  }
}
