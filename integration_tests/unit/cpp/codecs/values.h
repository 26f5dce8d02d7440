// Values that gradients are made of, and blocks of any type that hold them.

#ifndef PACELINE_INTEGRATION_TESTS_UNIT_CPP_CODECS_VALUES_H
#define PACELINE_INTEGRATION_TESTS_UNIT_CPP_CODECS_VALUES_H

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/codecs/codec.h"
#include "core/codecs/convert.h"
#include "core/codecs/data_type.h"

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kGreatest = std::numeric_limits<float>::max();
inline constexpr float kLeastNormal = std::numeric_limits<float>::min();

// Below, at and above what kernels and codecs take at once, and odd.
inline const std::vector<int64_t> kCounts = {0, 1, 2, 7, 63, 64, 65, 255, 256, 257, 511, 512, 1000, 1283};

inline const std::vector<paceline::core::DataType> kFloatTypes = {
    paceline::core::DataType::kFloat16, paceline::core::DataType::kBfloat16, paceline::core::DataType::kFloat32,
    paceline::core::DataType::kFloat64};

// Finite values of many kinds, by name; the same from run to run.
inline std::vector<std::pair<std::string, std::vector<float>>> Families(int64_t count) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> exponent(-126, 120);
  const auto made = [&](auto value) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& each : values) {
      each = value();
    }
    return values;
  };
  return {
      {"normal", made([&] { return normal(random); })},
      {"positive", made([&] { return std::abs(normal(random)); })},
      {"tiny", made([&] { return 1e-30F * normal(random); })},
      {"huge", made([&] { return std::fmod(1e38F * normal(random), 3e38F); })},
      {"greatest", made([&] { return random() % 2 != 0 ? kGreatest : -kGreatest / 3; })},
      {"subnormal", made([&] { return 1e-40F * normal(random); })},
      {"around the least normal", made([&] { return 4 * kLeastNormal * normal(random); })},
      {"of any magnitude", made([&] { return std::copysign(std::exp2(exponent(random)), normal(random)); })},
      {"mostly zero", made([&] { return random() % 50 != 0 ? 0.F : normal(random); })},
      {"zero", made([&] { return 0.F; })},
      {"one outlier",
       made([&, first = true]() mutable { return std::exchange(first, false) ? 1e6F : normal(random); })},
  };
}

// What a receiver decodes.
inline std::vector<float> RoundTrip(const paceline::core::Codec& codec, const std::vector<float>& values) {
  constexpr auto kType = paceline::core::DataType::kFloat32;
  const auto count = static_cast<int64_t>(values.size());
  std::vector<uint8_t> bytes(static_cast<size_t>(codec.EncodedBytes(kType, count)));
  std::vector<float> decoded(values.size());
  codec.Encode(kType, values.data(), count, bytes.data());
  codec.Decode(kType, bytes.data(), count, decoded.data());
  return decoded;
}

// Bytes of a block, with a byte before it, so that it is not aligned, and some after it that nobody may write.
class Block {
 public:
  explicit Block(int64_t bytes) : bytes_(bytes), memory_(static_cast<size_t>(1 + bytes + kGuard), kGuardByte) {}
  Block(paceline::core::DataType type, const std::vector<float>& values)
      : Block(static_cast<int64_t>(values.size()) * BytesOf(type)) {
    paceline::core::FromFloat(type, values.data(), static_cast<int64_t>(values.size()), data());
  }

  uint8_t* data() { return memory_.data() + 1; }
  std::vector<float> Values(paceline::core::DataType type) {
    std::vector<float> values(static_cast<size_t>(bytes_ / BytesOf(type)));
    paceline::core::ToFloat(type, data(), static_cast<int64_t>(values.size()), values.data());
    return values;
  }
  bool operator==(const Block& other) const { return memory_ == other.memory_; }
  bool overrun() const {
    for (size_t i = 0; i < kGuard; ++i) {
      if (memory_[memory_.size() - 1 - i] != kGuardByte) {
        return true;
      }
    }
    return memory_[0] != kGuardByte;
  }

 private:
  static constexpr int64_t kGuard = 64;
  static constexpr uint8_t kGuardByte = 0xa5;

  int64_t bytes_;
  std::vector<uint8_t> memory_;
};

#endif  // PACELINE_INTEGRATION_TESTS_UNIT_CPP_CODECS_VALUES_H
