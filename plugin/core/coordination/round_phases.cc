#include "core/coordination/round_phases.h"

namespace paceline::core {

namespace {

// base^exponent, at most `most`.
int64_t Power(int64_t base, int32_t exponent, int64_t most) {
  int64_t power = 1;
  for (int32_t n = 0; n < exponent && power < most; ++n) {
    power *= base;
  }
  return power < most ? power : most;
}

}  // namespace

std::vector<RoundPhase> RoundPhases(int32_t rank, int32_t size) {
  int32_t phases = 0;
  while (Power(kMostInOneHop, phases, size) < size) {
    ++phases;
  }
  int32_t radix = 1;
  while (Power(radix, phases, size) < size) {
    ++radix;
  }
  std::vector<RoundPhase> all;
  for (int32_t phase = phases - 1; phase >= 0; --phase) {
    const auto stride = static_cast<int32_t>(Power(radix, phase, size));
    RoundPhase one;
    for (int32_t step = stride; step < size && step < radix * stride; step += stride) {
      one.to.push_back((rank + step) % size);
      one.from.push_back((rank - step + size) % size);
    }
    all.push_back(one);
  }
  return all;
}

}  // namespace paceline::core
