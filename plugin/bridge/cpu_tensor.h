// Tensors of our own in memory of the CPU, for operations that no framework hands in.

#ifndef PACELINE_BRIDGE_CPU_TENSOR_H
#define PACELINE_BRIDGE_CPU_TENSOR_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "horovod/common/common.h"

namespace horovod::paceline {

// Zeros at first.
class CpuTensor : public common::Tensor {
 public:
  CpuTensor(common::DataType dtype, common::TensorShape shape);
  CpuTensor(common::DataType dtype, int64_t elements);
  // NOLINTNEXTLINE(clang-diagnostic-ignored-qualifiers): as Horovod declares it
  const common::DataType dtype() const override { return dtype_; }
  const common::TensorShape shape() const override { return shape_; }
  const void* data() const override { return bytes_.data(); }
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }

  uint8_t* bytes() { return bytes_.data(); }
  // Of a float64 tensor.
  double* values() { return reinterpret_cast<double*>(bytes_.data()); }

 private:
  common::DataType dtype_;
  common::TensorShape shape_;
  std::vector<uint8_t> bytes_;
};

// Allocates in memory of the CPU, without any framework.
std::shared_ptr<common::OpContext> CpuContext();

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_CPU_TENSOR_H
