#include "core/codecs/combine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "core/codecs/convert.h"
#include "core/codecs/elements.h"
#include "core/codecs/vectorised.h"

namespace paceline::core {

namespace {

// Unsigned, and at least as wide as int: arithmetic that wraps around, also where small types are promoted to int.
template <typename T>
using Wrapping = std::make_unsigned_t<std::common_type_t<T, int>>;

template <typename T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  } else {
    return a + b;
  }
}

template <typename T>
T Product(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  } else {
    return a * b;
  }
}

// The lesser of two floats, or the greater. `b` unless `a` comes first or is a NaN; two that are equal but not the same
// are 0 and -0, of which "or" of the bits makes -0 and "and" makes 0.
template <ReduceOp op, typename T>
T Extreme(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr Bits kAll = ~Bits{0};
  Bits x = 0, y = 0;
  std::memcpy(&x, &a, sizeof x);
  std::memcpy(&y, &b, sizeof y);
  const bool first = op == ReduceOp::kMin ? a < b : a > b;
  const Bits take = (first ? kAll : 0) | (std::isnan(a) ? kAll : 0);
  const Bits equal = a == b ? kAll : 0;
  Bits bits = (x & take) | (y & ~take);
  bits = op == ReduceOp::kMin ? bits | (x & equal) : bits & (x | ~equal);
  T result = 0;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

template <ReduceOp op, typename T>
T Combination(T a, T b) {
  if constexpr (op == ReduceOp::kSum) {
    return Sum(a, b);
  } else if constexpr (op == ReduceOp::kProduct) {
    return Product(a, b);
  } else if constexpr (std::is_floating_point_v<T>) {
    return Extreme<op>(a, b);
  } else if constexpr (op == ReduceOp::kMin) {
    return a < b ? a : b;
  } else {
    return a > b ? a : b;
  }
}

template <typename Element, ReduceOp op>
struct Combined {
  using Target = Element;
  using Source = Element;
  using Value = typename Element::Value;
  static Value Of(Value own, Value incoming) { return Combination<op>(own, incoming); }
};

// What has no counterpart in T becomes the nearest that has; a NaN, the greatest.
template <typename T>
T Saturated(double value) {
  if constexpr (sizeof(T) < 8) {
    constexpr double kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
    value = value < kMost ? value : kMost;
    return static_cast<T>(value > kLeast ? value : kLeast);
  } else {
    // The greatest int64 is no float64.
    return value < 0x1p63 ? static_cast<T>(value > -0x1p63 ? value : -0x1p63) : std::numeric_limits<T>::max();
  }
}

template <typename Element>
struct Scaled {
  using Target = Element;
  using Source = Nothing;
  using Value = typename Element::Value;
  static Value Of(Value value, uint8_t /*none*/, double factor) {
    if constexpr (std::is_floating_point_v<Value>) {
      return value * static_cast<Value>(factor);
    } else {
      return Saturated<Value>(static_cast<double>(value) * factor);
    }
  }
};

// Converting float16 in pieces is faster than within the loops above, because the processor may have instructions for
// it (f16c.h). `compute` gets the piece in float32, its beginning and its length.
constexpr int64_t kPiece = 256;

template <typename Compute>
void InFloat(uint8_t* block, int64_t count, const Compute& compute) {
  std::array<float, kPiece> values;
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t some = std::min(kPiece, count - begin);
    uint8_t* const piece = block + begin * Float16::kBytes;
    ToFloat(DataType::kFloat16, piece, some, values.data());
    compute(values.data(), begin, some);
    FromFloat(DataType::kFloat16, values.data(), some, piece);
  }
}

}  // namespace

void Combine(DataType type, ReduceOp op, void* accumulator, const void* incoming, int64_t count) {
  if (type == DataType::kBool) {
    op = op == ReduceOp::kSum ? ReduceOp::kMax : op == ReduceOp::kProduct ? ReduceOp::kMin : op;
  }
  auto* const target = static_cast<uint8_t*>(accumulator);
  const auto* const source = static_cast<const uint8_t*>(incoming);
  VisitElement(type, [=](auto element) {
    using Element = decltype(element);
    if constexpr (std::is_same_v<Element, Float16>) {
      return InFloat(target, count, [=](float* values, int64_t begin, int64_t some) {
        std::array<float, kPiece> others;
        ToFloat(type, source + begin * Element::kBytes, some, others.data());
        Combine(DataType::kFloat32, op, values, others.data(), some);
      });
    } else {
      switch (op) {
        case ReduceOp::kSum:
          return RunOver<Combined<Element, ReduceOp::kSum>>(target, source, count);
        case ReduceOp::kMin:
          return RunOver<Combined<Element, ReduceOp::kMin>>(target, source, count);
        case ReduceOp::kMax:
          return RunOver<Combined<Element, ReduceOp::kMax>>(target, source, count);
        case ReduceOp::kProduct:
          return RunOver<Combined<Element, ReduceOp::kProduct>>(target, source, count);
      }
    }
  });
}

void Scale(DataType type, void* block, int64_t count, double factor) {
  if (type == DataType::kBool) {
    throw std::invalid_argument("bool cannot be scaled; convert the tensor to uint8 or to a floating-point type");
  }
  if (factor == 1) {
    return;
  }
  VisitElement(type, [=](auto element) {
    using Element = decltype(element);
    auto* const target = static_cast<uint8_t*>(block);
    if constexpr (std::is_same_v<Element, Float16>) {
      InFloat(target, count,
              [=](float* values, int64_t /*begin*/, int64_t some) { Scale(DataType::kFloat32, values, some, factor); });
    } else {
      RunOver<Scaled<Element>>(target, nullptr, count, factor);
    }
  });
}

}  // namespace paceline::core
