// Loops over blocks of values, written so that compilers turn them into vector instructions.

#ifndef PACELINE_CORE_CODECS_VECTORISED_H
#define PACELINE_CORE_CODECS_VECTORISED_H

#include <array>
#include <cstdint>
#include <cstring>

namespace paceline::core {

// A kernel is a struct with
//
//   kTargetBytes, kSourceBytes   of an element; kSourceBytes is 0 if there is no source
//   Run(target, source, chunks, ...)   goes over that many chunks of kChunk elements
//
// The number of elements in a chunk is fixed, so that compilers vectorise at -O2 too, where they refuse loops that
// leave a remainder; target and source are `__restrict`, so that they need not ask whether the two overlap. Memory may
// be aligned in any way.
inline constexpr int64_t kChunk = 64;

// On x86 a kernel is compiled twice: for what the build is for, which may be as little as SSE2, and for AVX2. Both give
// the same bits: no kernel adds to a product, which a compiler may round once where it has FMA. Not target_clones: that
// needs ifunc, which not every libc has and whose resolvers ThreadSanitizer does not survive.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__AVX2__)
template <typename Kernel, typename... Arguments>
__attribute__((target("avx2"), flatten)) void RunWithAvx2(Arguments... arguments) {
  Kernel::Run(arguments...);
}

template <typename Kernel, typename... Arguments>
void RunVectorised(Arguments... arguments) {
  if (__builtin_cpu_supports("avx2") != 0) {
    RunWithAvx2<Kernel>(arguments...);
  } else {
    Kernel::Run(arguments...);
  }
}
#else
template <typename Kernel, typename... Arguments>
void RunVectorised(Arguments... arguments) {
  Kernel::Run(arguments...);
}
#endif

// Runs the kernel over `count` elements; those beyond the last whole chunk in a copy that is padded with zeros.
template <typename Kernel, typename... More>
void RunOver(uint8_t* target, const uint8_t* source, int64_t count, More... more) {
  const int64_t chunks = count / kChunk, rest = count % kChunk;
  if (chunks > 0) {
    RunVectorised<Kernel>(target, source, chunks, more...);
  }
  if (rest > 0) {
    alignas(64) std::array<uint8_t, kChunk * Kernel::kTargetBytes> padded_target{};
    alignas(64) std::array<uint8_t, kChunk*(Kernel::kSourceBytes > 0 ? Kernel::kSourceBytes : 1)> padded_source{};
    uint8_t* const end = target + chunks * kChunk * Kernel::kTargetBytes;
    const auto rest_bytes = static_cast<size_t>(rest * Kernel::kTargetBytes);
    std::memcpy(padded_target.data(), end, rest_bytes);
    if constexpr (Kernel::kSourceBytes > 0) {
      std::memcpy(padded_source.data(), source + chunks * kChunk * Kernel::kSourceBytes,
                  static_cast<size_t>(rest * Kernel::kSourceBytes));
    }
    RunVectorised<Kernel>(padded_target.data(), static_cast<const uint8_t*>(padded_source.data()), int64_t{1}, more...);
    std::memcpy(end, padded_target.data(), rest_bytes);
  }
}

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_VECTORISED_H
