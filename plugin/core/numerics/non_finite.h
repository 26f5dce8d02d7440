// NaN and infinities among floating-point numbers.

#ifndef PACELINE_CORE_NUMERICS_NON_FINITE_H
#define PACELINE_CORE_NUMERICS_NON_FINITE_H

#include <cstdint>

namespace paceline::core {

// IEEE 754's binary16, binary32 and binary64.
enum class FloatFormat : uint8_t { kHalf, kSingle, kDouble };

struct NonFinite {
  int64_t nans = 0;
  int64_t infinities = 0;

  bool any() const { return nans + infinities > 0; }
};

// `values` need no alignment.
NonFinite CountNonFinite(const void* values, int64_t elements, FloatFormat format);

}  // namespace paceline::core

#endif  // PACELINE_CORE_NUMERICS_NON_FINITE_H
