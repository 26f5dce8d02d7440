#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/numerics/non_finite.h"

using paceline::core::CountNonFinite;
using paceline::core::FloatFormat;

namespace {

template <typename T>
void CheckFormat(FloatFormat format) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values = {0, -1, Limits::max(), Limits::lowest(), Limits::min(), Limits::denorm_min()};
  const auto count = [&] { return CountNonFinite(values.data(), static_cast<int64_t>(values.size()), format); };
  CHECK_FALSE(count().any());
  values.insert(values.end(), {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN(),
                               Limits::signaling_NaN()});
  CHECK(count().nans == 3);
  CHECK(count().infinities == 2);
}

}  // namespace

TEST_CASE("NaN and infinities of both signs are counted, the largest and smallest numbers are not") {
  CheckFormat<float>(FloatFormat::kSingle);
  CheckFormat<double>(FloatFormat::kDouble);
  // Half: 65504, the smallest number, infinity, minus infinity, NaN, minus NaN.
  const std::array<uint16_t, 6> halves = {0x7BFF, 0x0001, 0x7C00, 0xFC00, 0x7E00, 0xFC01};
  CHECK(CountNonFinite(halves.data(), 6, FloatFormat::kHalf).nans == 2);
  CHECK(CountNonFinite(halves.data(), 6, FloatFormat::kHalf).infinities == 2);
  CHECK_FALSE(CountNonFinite(halves.data(), 2, FloatFormat::kHalf).any());
  CHECK_FALSE(CountNonFinite(nullptr, 0, FloatFormat::kSingle).any());
}
