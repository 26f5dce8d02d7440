#include "bridge/cpu_tensor.h"

#include <utility>

namespace horovod::paceline {

namespace {

class CpuMemory : public common::PersistentBuffer {
 public:
  // Not initialised: a page that no message needs is never touched.
  explicit CpuMemory(int64_t size) : bytes_(new uint8_t[static_cast<size_t>(size)]) {}
  const void* AccessData(std::shared_ptr<common::OpContext>) const override { return bytes_.get(); }

 private:
  std::unique_ptr<uint8_t[]> bytes_;  // NOLINT(modernize-avoid-c-arrays): containers would initialise it
};

class Context : public common::OpContext {
 public:
  common::Status AllocatePersistent(int64_t size, std::shared_ptr<common::PersistentBuffer>* buffer) override {
    *buffer = std::make_shared<CpuMemory>(size);
    return common::Status::OK();
  }
  common::Status AllocateOutput(common::TensorShape shape, std::shared_ptr<common::Tensor>* tensor,
                                std::shared_ptr<common::ReadyEvent>*) override {
    *tensor = std::make_shared<CpuTensor>(common::DataType::HOROVOD_FLOAT64, std::move(shape));
    return common::Status::OK();
  }
  common::Status AllocateZeros(int64_t elements, common::DataType dtype,
                               std::shared_ptr<common::Tensor>* tensor) override {
    *tensor = std::make_shared<CpuTensor>(dtype, elements);
    return common::Status::OK();
  }
  // Fusion buffers are kept by framework. No library of Horovod's has two of them, so this one is free for us.
  common::Framework framework() const override { return common::Framework::MXNET; }
};

common::TensorShape Vector(int64_t elements) {
  common::TensorShape shape;
  shape.AddDim(elements);
  return shape;
}

}  // namespace

CpuTensor::CpuTensor(common::DataType dtype, common::TensorShape shape)
    : dtype_(dtype),
      shape_(std::move(shape)),
      bytes_(static_cast<size_t>(shape_.num_elements()) * common::DataType_Size(dtype)) {}

CpuTensor::CpuTensor(common::DataType dtype, int64_t elements) : CpuTensor(dtype, Vector(elements)) {}

std::shared_ptr<common::OpContext> CpuContext() {
  // Never destroyed: Horovod's background thread may outlive static destructors.
  static const auto* context = new std::shared_ptr<common::OpContext>(std::make_shared<Context>());
  return *context;
}

}  // namespace horovod::paceline
