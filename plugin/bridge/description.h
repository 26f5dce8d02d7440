// A tensor as Python and C describe it to each other.

#ifndef PACELINE_BRIDGE_DESCRIPTION_H
#define PACELINE_BRIDGE_DESCRIPTION_H

#include <array>
#include <cstdint>

#include "horovod/common/common.h"

namespace horovod::paceline {

// plugin/native/prototypes.py has the same.
struct TensorDescription {
  static constexpr int32_t kMostDims = 16;

  int32_t dtype;  // Horovod's number of it
  int32_t count;  // of dimensions
  std::array<int64_t, kMostDims> dims;
};

// False if the shape has too many dimensions.
inline bool Describe(common::DataType dtype, const common::TensorShape& shape, TensorDescription& out) {
  if (shape.dims() > TensorDescription::kMostDims) {
    return false;
  }
  out.dtype = static_cast<int32_t>(dtype);
  out.count = shape.dims();
  for (int n = 0; n < shape.dims(); ++n) {
    out.dims[n] = shape.dim_size(n);
  }
  return true;
}

inline common::TensorShape ShapeOf(const TensorDescription& description) {
  common::TensorShape shape;
  for (int32_t n = 0; n < description.count; ++n) {
    shape.AddDim(description.dims[n]);
  }
  return shape;
}

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_DESCRIPTION_H
