#include "core/numerics/non_finite.h"

#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>

namespace paceline::core {

namespace {

// `infinity`: the bits of positive infinity. Without branches, so that compilers vectorise it.
template <typename Bits>
NonFinite Count(const void* values, int64_t elements, Bits infinity) {
  using Wide = std::common_type_t<Bits, unsigned>;  // not promoted to int
  constexpr Wide kMagnitude = std::numeric_limits<Bits>::max() / 2;
  const auto* at = static_cast<const char*>(values);
  int64_t above = 0, from = 0;
  for (int64_t n = 0; n < elements; ++n) {
    Bits bits;
    std::memcpy(&bits, at + static_cast<size_t>(n) * sizeof(Bits), sizeof(Bits));
    const auto magnitude = static_cast<Bits>(Wide{bits} & kMagnitude);
    above += static_cast<int64_t>(magnitude > infinity);
    from += static_cast<int64_t>(magnitude >= infinity);
  }
  return {above, from - above};
}

}  // namespace

NonFinite CountNonFinite(const void* values, int64_t elements, FloatFormat format) {
  switch (format) {
    case FloatFormat::kHalf:
      return Count<uint16_t>(values, elements, 0x7C00);
    case FloatFormat::kSingle:
      return Count<uint32_t>(values, elements, 0x7F800000);
    default:
      return Count<uint64_t>(values, elements, 0x7FF0000000000000);
  }
}

}  // namespace paceline::core
