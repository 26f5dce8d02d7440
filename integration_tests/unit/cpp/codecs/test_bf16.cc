#include <vector>

#include "codecs/values.h"
#include "core/codecs/codec.h"
#include "core/codecs/half_types.h"
#include "doctest/doctest.h"

using namespace paceline::core;

namespace {

void CheckNearest(const std::vector<float>& values) {
  const std::vector<float> decoded = RoundTrip(CodecNamed("bf16"), values);
  for (size_t i = 0; i < values.size(); ++i) {
    CAPTURE(values[i]);
    REQUIRE(BitsOf(decoded[i]) == BitsOf(FloatFromBfloat16(Bfloat16FromFloat(values[i]))));
  }
}

}  // namespace

// test_half_types.cc shows that this is the nearest one, or infinity beyond the last: bf16 errs by at most 2^-9.
TEST_CASE("bf16 sends the bfloat16 of each value, in blocks of any size; infinities and NaN are among them") {
  for (const int64_t count : kCounts) {
    for (const auto& [family, values] : Families(count)) {
      CAPTURE(count);
      CAPTURE(family);
      CheckNearest(values);
    }
  }
  std::vector<float> all(65536);
  for (size_t pattern = 0; pattern < all.size(); ++pattern) {
    all[pattern] = FloatFromBfloat16(static_cast<uint16_t>(pattern));
  }
  CheckNearest(all);
}
