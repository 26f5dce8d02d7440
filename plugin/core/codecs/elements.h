// How an element of each data type is read from memory, computed with, and written back.

#ifndef PACELINE_CORE_CODECS_ELEMENTS_H
#define PACELINE_CORE_CODECS_ELEMENTS_H

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/codecs/data_type.h"
#include "core/codecs/half_types.h"

namespace paceline::core {

// Copied byte by byte (the compiler makes one load of it): the memory is whatever the framework says it is.
template <typename T>
T Load(const uint8_t* memory, int64_t index) {
  T value;
  std::memcpy(&value, memory + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void Store(uint8_t* memory, int64_t index, T value) {
  std::memcpy(memory + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// `Value` is what is computed with. bool is computed with as uint8: 0 or 1.
template <typename T>
struct Whole {
  using Value = T;
  static constexpr int64_t kBytes = sizeof(T);
  static Value Get(const uint8_t* memory, int64_t index) { return Load<T>(memory, index); }
  static void Put(uint8_t* memory, int64_t index, Value value) { Store<T>(memory, index, value); }
};

// Of a loop that has no source.
struct Nothing {
  using Value = uint8_t;
  static constexpr int64_t kBytes = 0;
  static Value Get(const uint8_t* /*memory*/, int64_t /*index*/) { return 0; }
};

struct Float16 {
  using Value = float;
  static constexpr int64_t kBytes = 2;
  static Value Get(const uint8_t* memory, int64_t index) { return FloatFromFloat16(Load<uint16_t>(memory, index)); }
  static void Put(uint8_t* memory, int64_t index, Value value) { Store(memory, index, Float16FromFloat(value)); }
};

struct Bfloat16 {
  using Value = float;
  static constexpr int64_t kBytes = 2;
  static Value Get(const uint8_t* memory, int64_t index) { return FloatFromBfloat16(Load<uint16_t>(memory, index)); }
  static void Put(uint8_t* memory, int64_t index, Value value) { Store(memory, index, Bfloat16FromFloat(value)); }
};

// Calls `visit` with an object of the type above that belongs to `type`.
template <typename Visit>
void VisitElement(DataType type, const Visit& visit) {
  switch (type) {
    case DataType::kUint8:
    case DataType::kBool:
      return visit(Whole<uint8_t>());
    case DataType::kInt8:
      return visit(Whole<int8_t>());
    case DataType::kUint16:
      return visit(Whole<uint16_t>());
    case DataType::kInt16:
      return visit(Whole<int16_t>());
    case DataType::kInt32:
      return visit(Whole<int32_t>());
    case DataType::kInt64:
      return visit(Whole<int64_t>());
    case DataType::kFloat16:
      return visit(Float16());
    case DataType::kBfloat16:
      return visit(Bfloat16());
    case DataType::kFloat32:
      return visit(Whole<float>());
    case DataType::kFloat64:
      return visit(Whole<double>());
  }
  throw std::invalid_argument("no data type has the number " + std::to_string(static_cast<int>(type)));
}

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_ELEMENTS_H
