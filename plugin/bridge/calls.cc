#include "bridge/calls.h"

#include <sstream>
#include <stdexcept>
#include <utility>

namespace horovod {
namespace paceline {

namespace {

const std::string kPrefix = "paceline.call.";  // NOLINT(cert-err58-cpp): a literal

class HostMemory : public common::PersistentBuffer {
 public:
  // Not initialised: a page that no message needs is never touched.
  explicit HostMemory(int64_t size) : bytes_(new uint8_t[static_cast<size_t>(size)]) {}
  const void* AccessData(std::shared_ptr<common::OpContext>) const override { return bytes_.get(); }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
};

// Allocates for calls in host memory, without any framework.
class HostContext : public common::OpContext {
 public:
  common::Status AllocatePersistent(int64_t size, std::shared_ptr<common::PersistentBuffer>* buffer) override {
    *buffer = std::make_shared<HostMemory>(size);
    return common::Status::OK();
  }
  common::Status AllocateOutput(common::TensorShape shape, std::shared_ptr<common::Tensor>* tensor,
                                std::shared_ptr<common::ReadyEvent>*) override {
    *tensor = std::make_shared<CallBuffer>(common::DataType::HOROVOD_FLOAT64, shape.num_elements());
    return common::Status::OK();
  }
  common::Status AllocateZeros(int64_t elements, common::DataType dtype,
                               std::shared_ptr<common::Tensor>* tensor) override {
    *tensor = std::make_shared<CallBuffer>(dtype, elements);
    return common::Status::OK();
  }
  // Fusion buffers are kept by framework. No library of Horovod's has two of them, so this one is free for us.
  common::Framework framework() const override { return common::Framework::MXNET; }
};

}  // namespace

bool IsCall(const std::string& name) { return name.compare(0, kPrefix.size(), kPrefix) == 0; }

std::string NameOf(const Call& call) {
  std::ostringstream name;
  name << kPrefix << static_cast<int32_t>(call.kind) << '.' << call.caller << '.' << call.number << '.' << call.part;
  return name.str();
}

Call CallOf(const std::string& name) {
  std::istringstream text(name.substr(kPrefix.size()));
  Call call;
  int32_t kind = 0;
  char dot = 0;
  if (!(text >> kind >> dot >> call.caller >> dot >> call.number >> dot >> call.part)) {
    throw std::invalid_argument("'" + name + "' is a reserved name and not a call of Paceline's");
  }
  call.kind = static_cast<CallKind>(kind);
  return call;
}

common::Request RequestFor(const Call& call, int64_t elements) {
  common::Request request;
  request.set_request_type(common::Request::ALLREDUCE);
  request.set_request_rank(call.caller);
  request.set_tensor_name(NameOf(call));
  request.set_tensor_type(call.kind == CallKind::kSweep ? common::DataType::HOROVOD_FLOAT32
                                                        : common::DataType::HOROVOD_FLOAT64);
  request.set_device(CPU_DEVICE_ID);
  request.set_group_id(NULL_GROUP_ID);
  request.set_prescale_factor(1.0);
  request.set_postscale_factor(1.0);
  request.set_reduce_op(call.kind == CallKind::kSweep ? common::ReduceOp::SUM : common::ReduceOp::MAX);
  request.add_tensor_shape(elements);
  return request;
}

CallBuffer::CallBuffer(common::DataType dtype, int64_t elements)
    : dtype_(dtype), bytes_(static_cast<size_t>(elements) * common::DataType_Size(dtype)) {
  shape_.AddDim(elements);
}

common::TensorTableEntry EntryFor(const std::string& name, const std::shared_ptr<CallBuffer>& buffer,
                                  int32_t process_set_id) {
  static const auto context = std::make_shared<HostContext>();
  common::TensorTableEntry entry;
  entry.tensor_name = name;
  entry.context = context;
  entry.tensor = buffer;
  entry.output = buffer;
  entry.process_set_id = process_set_id;
  entry.device = CPU_DEVICE_ID;
  entry.callback = [](const common::Status&) {};
  return entry;
}

}  // namespace paceline
}  // namespace horovod
