#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "codecs/values.h"
#include "core/codecs/combine.h"
#include "core/codecs/elements.h"
#include "doctest/doctest.h"

using namespace paceline::core;

namespace {

constexpr std::array kTypes = {DataType::kUint8,   DataType::kInt8,    DataType::kUint16,  DataType::kInt16,
                               DataType::kInt32,   DataType::kInt64,   DataType::kFloat16, DataType::kBfloat16,
                               DataType::kFloat32, DataType::kFloat64, DataType::kBool};
constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

// One element as the table in combine.h says it; what wraps around is computed in 128 bits.
template <typename T>
T Plainly(DataType type, ReduceOp op, T a, T b) {
  if (type == DataType::kBool) {
    const bool either = op == ReduceOp::kSum || op == ReduceOp::kMax;
    return either ? (a != 0 || b != 0) : (a != 0 && b != 0);
  }
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    return op == ReduceOp::kMin ? std::min(a, b) : std::max(a, b);
  }
  if constexpr (std::is_integral_v<T>) {
    __extension__ using Wide = __int128;
    return static_cast<T>(op == ReduceOp::kSum ? static_cast<Wide>(a) + b : static_cast<Wide>(a) * b);
  } else {
    return op == ReduceOp::kSum ? a + b : a * b;
  }
}

template <typename Element>
void Fill(DataType type, Block& block, int64_t count, std::mt19937_64& random) {
  using Value = typename Element::Value;
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_floating_point_v<Value>) {
      Element::Put(block.data(), i, static_cast<Value>(normal(random)));
    } else {
      Element::Put(block.data(), i, static_cast<Value>(type == DataType::kBool ? random() % 2 : random()));
    }
  }
}

}  // namespace

TEST_CASE(
    "every type, operation and count gives what single elements give, integers wrap around, nothing else is written") {
  std::mt19937_64 random(3);
  for (const DataType type : kTypes) {
    VisitElement(type, [&](auto element) {
      using Element = decltype(element);
      for (const ReduceOp op : kOps) {
        for (const int64_t count : kCounts) {
          CAPTURE(NameOf(type));
          CAPTURE(static_cast<int>(op));
          CAPTURE(count);
          Block a(count * BytesOf(type)), b(count * BytesOf(type));
          Fill<Element>(type, a, count, random);
          Fill<Element>(type, b, count, random);
          Block expected = a;
          for (int64_t i = 0; i < count; ++i) {
            Element::Put(expected.data(), i, Plainly(type, op, Element::Get(a.data(), i), Element::Get(b.data(), i)));
          }
          const Block incoming = b;
          Combine(type, op, a.data(), b.data(), count);
          CHECK(a == expected);
          CHECK(b == incoming);
        }
      }
    });
  }
}

TEST_CASE("minimum and maximum show a NaN of either side and order the zeros, whichever side comes first") {
  const std::array values = {0.F, -0.F, 1.F, -1.F, 1e-45F, kInf, -kInf, kNan, -kNan};
  for (const DataType type : kFloatTypes) {
    CAPTURE(NameOf(type));
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      for (const float a : values) {
        for (const float b : values) {
          Block x(type, {a}), y(type, {b});
          const float left = x.Values(type)[0], right = y.Values(type)[0];
          CAPTURE(left);
          CAPTURE(right);
          Block reverse = y;
          Combine(type, op, reverse.data(), x.data(), 1);
          Combine(type, op, x.data(), y.data(), 1);
          const float result = x.Values(type)[0];
          if (std::isnan(a) || std::isnan(b)) {
            CHECK(std::isnan(result));
            CHECK(std::isnan(reverse.Values(type)[0]));
            continue;
          }
          CHECK(x == reverse);
          const bool min = op == ReduceOp::kMin;
          CHECK(result == (min ? std::min(left, right) : std::max(left, right)));
          if (left == 0 && right == 0) {
            CHECK(std::signbit(result) ==
                  (min ? std::signbit(left) || std::signbit(right) : std::signbit(left) && std::signbit(right)));
          }
        }
      }
    }
  }
}

TEST_CASE("sums of half types are rounded once, and become infinite where they must") {
  struct Row {
    DataType type;
    float greatest, step;
  };
  for (const Row& row : {Row{DataType::kFloat16, 65504, 32}, Row{DataType::kBfloat16, 0x1.fep127F, 0x1p120F}}) {
    const auto [type, greatest, step] = row;
    CAPTURE(NameOf(type));
    const auto sum = [&row](float a, float b) {
      Block x(row.type, {a}), y(row.type, {b});
      Combine(row.type, ReduceOp::kSum, x.data(), y.data(), 1);
      return x.Values(row.type)[0];
    };
    CHECK(sum(greatest, step / 4) == greatest);
    CHECK(sum(greatest, step / 2) == kInf);
    CHECK(sum(-greatest, -greatest) == -kInf);
    CHECK(std::isnan(sum(kInf, -kInf)));
  }
}

TEST_CASE("scaling: floats in their own precision, integers through float64 toward zero; 1 changes nothing") {
  const std::vector<double> factors = {1. / 3, 0.5, -2, 0, 1e-3, 1, 3e5};
  std::mt19937_64 random(5);
  for (const DataType type : kTypes) {
    if (type == DataType::kBool) {
      continue;
    }
    VisitElement(type, [&](auto element) {
      using Element = decltype(element);
      using Value = typename Element::Value;
      for (const double factor : factors) {
        for (const int64_t count : kCounts) {
          CAPTURE(NameOf(type));
          CAPTURE(factor);
          CAPTURE(count);
          Block block(count * BytesOf(type));
          Fill<Element>(type, block, count, random);
          Block expected = block;
          for (int64_t i = 0; i < count && factor != 1; ++i) {
            const Value value = Element::Get(block.data(), i);
            if constexpr (std::is_floating_point_v<Value>) {
              Element::Put(expected.data(), i, value * static_cast<Value>(factor));
            } else {
              const double product = static_cast<double>(value) * factor;
              const bool below = product <= static_cast<double>(std::numeric_limits<Value>::min());
              const bool above = product >= static_cast<double>(std::numeric_limits<Value>::max());
              Element::Put(expected.data(), i,
                           below   ? std::numeric_limits<Value>::min()
                           : above ? std::numeric_limits<Value>::max()
                                   : static_cast<Value>(product));
            }
          }
          Scale(type, block.data(), count, factor);
          CHECK(block == expected);
        }
      }
    });
  }
}

TEST_CASE("scaled integers that are out of range become the nearest in range, also where float64 has no such number") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  std::vector<int64_t> values = {int64_t{1} << 62, -(int64_t{1} << 62), kMost, kLeast, 3};
  Scale(DataType::kInt64, values.data(), 5, 2);
  CHECK(values == std::vector<int64_t>{kMost, kLeast, kMost, kLeast, 6});
}

TEST_CASE("bool is not scaled") {
  bool truth = true;
  CHECK_THROWS_WITH_AS(Scale(DataType::kBool, &truth, 1, 0.5),
                       "bool cannot be scaled; convert the tensor to uint8 or to a floating-point type",
                       std::invalid_argument);
}
