#include "core/codecs/f16c.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define PACELINE_F16C 1
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace paceline::core {

#ifdef PACELINE_F16C

namespace {

constexpr int64_t kAtOnce = 8;

// Whether the processor has these instructions and the operating system keeps the registers that they use.
bool HasF16c() {
  static const bool* has = new bool([] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx") != 0 && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }());
  return *has;
}

__attribute__((target("avx,f16c"))) void Widen(const uint8_t* halves, int64_t count, float* values) {
  for (int64_t i = 0; i < count; i += kAtOnce) {
    const __m128i eight = _mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + 2 * i));
    _mm256_storeu_ps(values + i, _mm256_cvtph_ps(eight));
  }
}

__attribute__((target("avx,f16c"))) void Narrow(const float* values, int64_t count, uint8_t* halves) {
  for (int64_t i = 0; i < count; i += kAtOnce) {
    const __m128i eight = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + 2 * i), eight);
  }
}

int64_t Convertible(int64_t count) { return HasF16c() ? count / kAtOnce * kAtOnce : 0; }

}  // namespace

int64_t WidenWithF16c(const uint8_t* halves, int64_t count, float* values) {
  const int64_t some = Convertible(count);
  if (some > 0) {
    Widen(halves, some, values);
  }
  return some;
}

int64_t NarrowWithF16c(const float* values, int64_t count, uint8_t* halves) {
  const int64_t some = Convertible(count);
  if (some > 0) {
    Narrow(values, some, halves);
  }
  return some;
}

#else

int64_t WidenWithF16c(const uint8_t* /*halves*/, int64_t /*count*/, float* /*values*/) { return 0; }
int64_t NarrowWithF16c(const float* /*values*/, int64_t /*count*/, uint8_t* /*halves*/) { return 0; }

#endif

}  // namespace paceline::core
