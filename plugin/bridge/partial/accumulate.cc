#include "bridge/partial/accumulate.h"

#include <type_traits>

#include "horovod/common/half.h"

namespace horovod {
namespace paceline {

namespace {

using common::DataType;

struct Half {
  uint16_t bits;
  explicit operator float() const {
    float value = 0;
    common::HalfBits2Float(&bits, &value);
    return value;
  }
  static Half Of(float value) {
    Half half{};
    common::Float2HalfBits(&value, &half.bits);
    return half;
  }
};

template <typename T>
T Sum(T one, T other) {
  return static_cast<T>(one + other);
}
template <>
Half Sum(Half one, Half other) {
  return Half::Of(static_cast<float>(one) + static_cast<float>(other));
}

template <typename T>
T Number(double value) {
  return static_cast<T>(value);
}
template <>
Half Number(double value) {
  return Half::Of(static_cast<float>(value));
}

template <typename T>
double Plain(T value) {
  return static_cast<double>(value);
}
template <>
double Plain(Half value) {
  return static_cast<double>(static_cast<float>(value));
}

// Calls `act` with a null pointer to the C++ type; whether there is one.
template <typename Act>
bool WithType(DataType dtype, Act&& act) {
  switch (dtype) {
    case DataType::HOROVOD_UINT8:
      return act(static_cast<uint8_t*>(nullptr)), true;
    case DataType::HOROVOD_INT8:
      return act(static_cast<int8_t*>(nullptr)), true;
    case DataType::HOROVOD_INT32:
      return act(static_cast<int32_t*>(nullptr)), true;
    case DataType::HOROVOD_INT64:
      return act(static_cast<int64_t*>(nullptr)), true;
    case DataType::HOROVOD_FLOAT16:
      return act(static_cast<Half*>(nullptr)), true;
    case DataType::HOROVOD_FLOAT32:
      return act(static_cast<float*>(nullptr)), true;
    case DataType::HOROVOD_FLOAT64:
      return act(static_cast<double*>(nullptr)), true;
    default:
      return false;
  }
}

}  // namespace

bool CanAdd(DataType dtype) {
  return WithType(dtype, [](auto*) {});
}

void Add(DataType dtype, uint8_t* total, const uint8_t* more, size_t bytes) {
  WithType(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    auto* sums = reinterpret_cast<T*>(total);
    const auto* values = reinterpret_cast<const T*>(more);
    for (size_t n = 0; n < bytes / sizeof(T); ++n) {
      sums[n] = Sum(sums[n], values[n]);
    }
  });
}

void SetElement(DataType dtype, uint8_t* data, size_t index, double value) {
  WithType(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    reinterpret_cast<T*>(data)[index] = Number<T>(value);
  });
}

double Element(DataType dtype, const uint8_t* data, size_t index) {
  double value = 0;
  WithType(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    value = Plain(reinterpret_cast<const T*>(data)[index]);
  });
  return value;
}

}  // namespace paceline
}  // namespace horovod
