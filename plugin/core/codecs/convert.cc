#include "core/codecs/convert.h"

#include <stdexcept>
#include <string>
#include <type_traits>

#include "core/codecs/elements.h"
#include "core/codecs/f16c.h"
#include "core/codecs/vectorised.h"

namespace paceline::core {

namespace {

template <typename To, typename From>
struct Converted {
  using Target = To;
  using Source = From;
  static typename To::Value Of(typename To::Value /*old*/, typename From::Value value) {
    return static_cast<typename To::Value>(value);
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
  const auto* const source = static_cast<const uint8_t*>(block);
  const int64_t done = type == DataType::kFloat16 ? WidenWithF16c(source, count, values) : 0;
  VisitFloat(type, [=](auto element) {
    using Element = decltype(element);
    RunOver<Converted<Whole<float>, Element>>(reinterpret_cast<uint8_t*>(values + done),
                                              source + done * Element::kBytes, count - done);
  });
}

void FromFloat(DataType type, const float* values, int64_t count, void* block) {
  auto* const target = static_cast<uint8_t*>(block);
  const int64_t done = type == DataType::kFloat16 ? NarrowWithF16c(values, count, target) : 0;
  VisitFloat(type, [=](auto element) {
    using Element = decltype(element);
    RunOver<Converted<Element, Whole<float>>>(target + done * Element::kBytes,
                                              reinterpret_cast<const uint8_t*>(values + done), count - done);
  });
}

}  // namespace paceline::core
