#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "codecs/values.h"
#include "core/codecs/codec.h"
#include "core/codecs/half_types.h"
#include "doctest/doctest.h"

using namespace paceline::core;

namespace {

struct Way {
  const char* name;
  int most;
};

constexpr Way kQ8{"q8", 127}, kQ4{"q4", 7};

// Of the block of element i: the greatest finite magnitude by the most, or by one less beside values that are not
// finite.
double Step(const Way& way, const std::vector<float>& values, size_t i) {
  const size_t begin = i / kCodecSlice * kCodecSlice, end = std::min<size_t>(values.size(), begin + kCodecSlice);
  double greatest = 0;
  int codes = way.most;
  for (size_t k = begin; k < end; ++k) {
    greatest = std::isfinite(values[k]) ? std::max(greatest, std::abs(double{values[k]})) : greatest;
    codes = std::isfinite(values[k]) ? codes : way.most - 1;
  }
  return std::max(greatest / codes, double{kLeastNormal});
}

// Finite values are within half a step, and the error of computing in float32; others are what they were.
void CheckAll(const Way& way, const std::vector<float>& values) {
  const std::vector<float> decoded = RoundTrip(CodecNamed(way.name), values);
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CAPTURE(values[i]);
    CAPTURE(decoded[i]);
    if (std::isfinite(values[i])) {
      const double rounding = way.most * 0x1p-23;
      REQUIRE(std::abs(double{decoded[i]} - values[i]) <= Step(way, values, i) * (0.5 + rounding));
    } else if (std::isnan(values[i])) {
      REQUIRE(std::isnan(decoded[i]));
    } else {
      REQUIRE(decoded[i] == values[i]);
    }
  }
}

// The step of a block of up to 4 values, and the bytes behind it.
std::pair<float, std::vector<int>> Encoded(const Way& way, const std::vector<float>& values) {
  const Codec& codec = CodecNamed(way.name);
  std::vector<uint8_t> bytes(
      static_cast<size_t>(codec.EncodedBytes(DataType::kFloat32, static_cast<int64_t>(values.size()))));
  codec.Encode(DataType::kFloat32, values.data(), static_cast<int64_t>(values.size()), bytes.data());
  float step = 0;
  std::memcpy(&step, bytes.data(), sizeof step);
  return {step, {bytes.begin() + 4, bytes.end()}};
}

}  // namespace

TEST_CASE("it errs by at most half a step, whatever the magnitudes") {
  for (const Way& way : {kQ8, kQ4}) {
    for (const int64_t count : kCounts) {
      for (const auto& [family, values] : Families(count)) {
        CAPTURE(way.name);
        CAPTURE(count);
        CAPTURE(family);
        CheckAll(way, values);
      }
    }
  }
}

TEST_CASE("NaN and infinities are what they were, and numbers beside them stay numbers within half a step") {
  std::mt19937 random(13);
  for (const Way& way : {kQ8, kQ4}) {
    CAPTURE(way.name);
    for (const int64_t count : kCounts) {
      for (auto [family, values] : Families(count)) {
        CAPTURE(count);
        CAPTURE(family);
        for (float& value : values) {
          const float strange[] = {kNan, -kNan, kInf, -kInf};
          value = random() % 300 == 0 ? strange[random() % 4] : value;
        }
        CheckAll(way, values);
      }
    }
    for (const float strange : {kNan, kInf, -kInf}) {
      for (const size_t count : {1, 255, 256, 257}) {
        CheckAll(way, std::vector<float>(count, strange));
        for (const size_t at : {size_t{0}, count / 2, count - 1}) {
          std::vector<float> values(count, 0.25F);
          values[at] = strange;
          CheckAll(way, values);
        }
      }
    }
  }
}

TEST_CASE("multiples of a step come back exactly, the greatest magnitude among them") {
  for (const Way& way : {kQ8, kQ4}) {
    for (const float step : {1.F, 0x1p-126F, 0x1p-20F, 0x1p120F, 3e-5F}) {
      CAPTURE(way.name);
      CAPTURE(step);
      std::vector<float> values;
      for (int code = -way.most; code <= way.most; ++code) {
        values.push_back(static_cast<float>(code) * step);
      }
      const std::vector<float> decoded = RoundTrip(CodecNamed(way.name), values);
      for (size_t i = 0; i < values.size(); ++i) {
        REQUIRE(decoded[i] == values[i]);
      }
    }
  }
}

TEST_CASE("half-way between two codes the even one is taken, on both sides of zero") {
  const std::vector<float> decoded = RoundTrip(CodecNamed("q8"), {127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5});
  CHECK(decoded == std::vector<float>{127, 0, 2, 2, 0, -2, -2, 126});
  CHECK(RoundTrip(CodecNamed("q4"), {-7, 0.5, 1.5, -2.5, 6.5}) == std::vector<float>{-7, 0, 2, -2, 6});
}

TEST_CASE("the layout of the bytes") {
  using Block = std::pair<float, std::vector<int>>;
  CHECK(Encoded(kQ8, {254, -254, 2, 0}) == Block{2, {127, 256 - 127, 1, 0}});
  CHECK(Encoded(kQ8, {kInf, -kInf, kNan, 126}) == Block{-1, {127, 256 - 127, 128, 126}});
  // Two codes to a byte, the first in its low half.
  CHECK(Encoded(kQ4, {14, -14, 2}) == Block{2, {0x97, 0x01}});
  CHECK(Encoded(kQ4, {kInf, -kInf, kNan, 6}) == Block{-1, {0x97, 0x68}});
  // A step is never subnormal, where all is zero neither.
  for (const float value : {0.F, -0.F, 0x1p-149F, 0x1p-121F}) {
    CAPTURE(value);
    CHECK(Encoded(kQ8, {value}) == Block{kLeastNormal, {value == 0x1p-121F ? 32 : 0}});
  }
}

TEST_CASE("float16 and float64 are met to within half a step, too") {
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat64}) {
    Block block(type, Families(1000)[0].second);
    const std::vector<float> given = block.Values(type);
    std::vector<uint8_t> bytes(static_cast<size_t>(CodecNamed("q8").EncodedBytes(type, 1000)));
    CodecNamed("q8").Encode(type, block.data(), 1000, bytes.data());
    CodecNamed("q8").Decode(type, bytes.data(), 1000, block.data());
    const std::vector<float> decoded = block.Values(type);
    const double rounding = type == DataType::kFloat16 ? 0x1p-11 : type == DataType::kBfloat16 ? 0x1p-8 : 0x1p-24;
    for (size_t i = 0; i < given.size(); ++i) {
      REQUIRE(std::abs(double{decoded[i]} - given[i]) <=
              Step(kQ8, given, i) * 0.50002 + std::abs(decoded[i]) * rounding);
    }
  }
}
