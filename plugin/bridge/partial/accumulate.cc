#include "bridge/partial/accumulate.h"

#include <algorithm>
#include <type_traits>

#include "gloo/math.h"
#include "gloo/types.h"

namespace horovod::paceline {

namespace {

using common::DataType;

// gloo::sum counts by int.
constexpr size_t kMostAtOnce = size_t{1} << 30U;

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
      return act(static_cast<gloo::float16*>(nullptr)), true;
    case DataType::HOROVOD_FLOAT32:
      return act(static_cast<float*>(nullptr)), true;
    case DataType::HOROVOD_FLOAT64:
      return act(static_cast<double*>(nullptr)), true;
    default:
      return false;
  }
}

template <typename T>
double Plain(T value) {
  return static_cast<double>(value);
}
double Plain(gloo::float16 value) { return static_cast<double>(gloo::cpu_half2float(value)); }

template <typename T>
T Quotient(T value, double by) {
  return static_cast<T>(static_cast<double>(value) / by);
}
gloo::float16 Quotient(gloo::float16 value, double by) {
  return gloo::cpu_float2half_rn(gloo::cpu_half2float(value) / static_cast<float>(by));
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
    const size_t elements = bytes / sizeof(T);
    for (size_t done = 0; done < elements; done += kMostAtOnce) {
      gloo::sum<T>(sums + done, values + done, std::min(kMostAtOnce, elements - done));
    }
  });
}

void Divide(DataType dtype, uint8_t* data, size_t bytes, double by) {
  WithType(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    auto* const values = reinterpret_cast<T*>(data);
    const size_t elements = bytes / sizeof(T);
    std::transform(values, values + elements, values, [&](T value) { return Quotient(value, by); });
  });
}

void SetElement(DataType dtype, uint8_t* data, size_t index, double value) {
  WithType(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    reinterpret_cast<T*>(data)[index] = static_cast<T>(value);
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

}  // namespace horovod::paceline
