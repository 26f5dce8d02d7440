// What blocks of values consist of, and how values are combined.

#ifndef PACELINE_CORE_CODECS_DATA_TYPE_H
#define PACELINE_CORE_CODECS_DATA_TYPE_H

#include <cstdint>

namespace paceline::core {

// Those that Horovod reduces, and bfloat16. The numbers are ours alone.
enum class DataType : uint8_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kBool,
};

enum class ReduceOp : uint8_t { kSum, kMin, kMax, kProduct };

constexpr int64_t BytesOf(DataType type) {
  switch (type) {
    case DataType::kUint8:
    case DataType::kInt8:
    case DataType::kBool:
      return 1;
    case DataType::kUint16:
    case DataType::kInt16:
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;  // no other value exists
}

// As NumPy and PyTorch call it.
constexpr const char* NameOf(DataType type) {
  switch (type) {
    case DataType::kUint8:
      return "uint8";
    case DataType::kInt8:
      return "int8";
    case DataType::kUint16:
      return "uint16";
    case DataType::kInt16:
      return "int16";
    case DataType::kInt32:
      return "int32";
    case DataType::kInt64:
      return "int64";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBfloat16:
      return "bfloat16";
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat64:
      return "float64";
    case DataType::kBool:
      return "bool";
  }
  return "unknown";
}

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_DATA_TYPE_H
