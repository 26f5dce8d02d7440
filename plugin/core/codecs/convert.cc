#include "core/codecs/convert.h"

#include <stdexcept>
#include <string>
#include <type_traits>

#include "core/codecs/elements.h"
#include "core/codecs/vectorised.h"

namespace paceline::core {

namespace {

template <typename To, typename From>
struct ConvertKernel {
  static constexpr int64_t kTargetBytes = To::kBytes, kSourceBytes = From::kBytes;

  static void Run(uint8_t* __restrict target, const uint8_t* __restrict source, int64_t chunks) {
    for (; chunks > 0; --chunks, target += kChunk * kTargetBytes, source += kChunk * kSourceBytes) {
      for (int64_t i = 0; i < kChunk; ++i) {
        To::Put(target, i, static_cast<typename To::Value>(From::Get(source, i)));
      }
    }
  }
};

// Calls `visit` with the element's type if it is a floating-point one.
template <typename Visit>
void VisitFloat(DataType type, const Visit& visit) {
  VisitElement(type, [&](auto element) {
    if constexpr (std::is_floating_point_v<typename decltype(element)::Value>) {
      visit(element);
    } else {
      throw std::invalid_argument(std::string(NameOf(type)) + " is no floating-point type");
    }
  });
}

}  // namespace

void ToFloat(DataType type, const void* block, int64_t count, float* values) {
  VisitFloat(type, [=](auto element) {
    RunOver<ConvertKernel<Whole<float>, decltype(element)>>(reinterpret_cast<uint8_t*>(values),
                                                            static_cast<const uint8_t*>(block), count);
  });
}

void FromFloat(DataType type, const float* values, int64_t count, void* block) {
  VisitFloat(type, [=](auto element) {
    RunOver<ConvertKernel<decltype(element), Whole<float>>>(static_cast<uint8_t*>(block),
                                                            reinterpret_cast<const uint8_t*>(values), count);
  });
}

}  // namespace paceline::core
