// Loops over blocks of values, written so that compilers turn them into vector instructions.

#ifndef PACELINE_CORE_CODECS_VECTORISED_H
#define PACELINE_CORE_CODECS_VECTORISED_H

#include <array>
#include <cstdint>
#include <cstring>

namespace paceline::core {

// A kernel is a struct with a loop, Run(...). On x86 it is compiled twice: for what the build is for, which may be as
// little as SSE2, and for AVX2. Both give the same bits: no kernel adds to a product, which a compiler may round once
// where it has FMA. Not target_clones: that needs ifunc, which not every libc has and whose resolvers ThreadSanitizer
// does not survive.
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

// The number of elements in a chunk is fixed, so that compilers vectorise at -O2 too, where they refuse loops that
// leave a remainder.
inline constexpr int64_t kChunk = 64;

// Goes over so many chunks. Target and source are `__restrict`, so that compilers need not ask whether the two overlap;
// both may be aligned in any way.
template <typename Each>
struct ChunksKernel {
  template <typename... More>
  static void Run(uint8_t* __restrict target, const uint8_t* __restrict source, int64_t chunks, More... more) {
    using Target = typename Each::Target;
    using Source = typename Each::Source;
    for (; chunks > 0; --chunks, target += kChunk * Target::kBytes, source += kChunk * Source::kBytes) {
      for (int64_t i = 0; i < kChunk; ++i) {
        Target::Put(target, i, Each::Of(Target::Get(target, i), Source::Get(source, i), more...));
      }
    }
  }
};

// Makes `Each` of `count` elements; of those beyond the last whole chunk in a copy that is padded with zeros. `Each` is
// a struct with
//
//   Target, Source      what elements are (elements.h); Source is Nothing if there is none
//   Of(old, from, ...)  the new element of the target, of its old one and the source's
template <typename Each, typename... More>
void RunOver(uint8_t* target, const uint8_t* source, int64_t count, More... more) {
  constexpr int64_t kTargetBytes = Each::Target::kBytes, kSourceBytes = Each::Source::kBytes;
  const int64_t chunks = count / kChunk, rest = count % kChunk;
  if (chunks > 0) {
    RunVectorised<ChunksKernel<Each>>(target, source, chunks, more...);
  }
  if (rest > 0) {
    alignas(64) std::array<uint8_t, kChunk * kTargetBytes> padded_target{};
    alignas(64) std::array<uint8_t, kChunk*(kSourceBytes > 0 ? kSourceBytes : 1)> padded_source{};
    uint8_t* const end = target + chunks * kChunk * kTargetBytes;
    const auto rest_bytes = static_cast<size_t>(rest * kTargetBytes);
    std::memcpy(padded_target.data(), end, rest_bytes);
    if constexpr (kSourceBytes > 0) {
      std::memcpy(padded_source.data(), source + chunks * kChunk * kSourceBytes,
                  static_cast<size_t>(rest * kSourceBytes));
    }
    RunVectorised<ChunksKernel<Each>>(padded_target.data(), static_cast<const uint8_t*>(padded_source.data()),
                                      int64_t{1}, more...);
    std::memcpy(end, padded_target.data(), rest_bytes);
  }
}

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_VECTORISED_H
