#include "bridge/types.h"

namespace horovod::paceline {

using ::paceline::core::DataType;
using ::paceline::core::ReduceOp;

std::optional<DataType> TypeOf(common::DataType dtype) {
  switch (dtype) {
    case common::DataType::HOROVOD_UINT8:
      return DataType::kUint8;
    case common::DataType::HOROVOD_INT8:
      return DataType::kInt8;
    case common::DataType::HOROVOD_UINT16:
      return DataType::kUint16;
    case common::DataType::HOROVOD_INT16:
      return DataType::kInt16;
    case common::DataType::HOROVOD_INT32:
      return DataType::kInt32;
    case common::DataType::HOROVOD_INT64:
      return DataType::kInt64;
    case common::DataType::HOROVOD_FLOAT16:
      return DataType::kFloat16;
    case common::DataType::HOROVOD_FLOAT32:
      return DataType::kFloat32;
    case common::DataType::HOROVOD_FLOAT64:
      return DataType::kFloat64;
    case common::DataType::HOROVOD_BOOL:
      return DataType::kBool;
  }
  return std::nullopt;
}

std::optional<ReduceOp> OpOf(common::ReduceOp op) {
  switch (op) {
    case common::ReduceOp::AVERAGE:
    case common::ReduceOp::SUM:
      return ReduceOp::kSum;
    case common::ReduceOp::MIN:
      return ReduceOp::kMin;
    case common::ReduceOp::MAX:
      return ReduceOp::kMax;
    case common::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    default:
      return std::nullopt;
  }
}

}  // namespace horovod::paceline
