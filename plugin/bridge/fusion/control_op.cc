#include "bridge/fusion/control_op.h"

#include <sstream>
#include <stdexcept>
#include <utility>

namespace horovod::paceline {

bool OfControlOp(const common::Response& response) {
  const auto type = response.response_type();
  return (type == common::Response::ALLREDUCE || type == common::Response::ERROR) && !response.tensor_names().empty() &&
         IsControlOp(response.tensor_names()[0]);
}

std::string NameOf(const ControlOp& op) {
  std::ostringstream name;
  name << kControlNames << static_cast<int32_t>(op.kind) << '.' << op.asker << '.' << op.number << '.' << op.part;
  return name.str();
}

ControlOp ControlOpOf(const std::string& name) {
  std::istringstream text(name.substr(kControlNames.size()));
  ControlOp op;
  int32_t kind = 0;
  char dot = 0;
  if (!(text >> kind >> dot >> op.asker >> dot >> op.number >> dot >> op.part)) {
    throw std::invalid_argument("'" + name + "' is a reserved name and not a control operation of Paceline's");
  }
  op.kind = static_cast<ControlKind>(kind);
  return op;
}

common::Request RequestFor(const ControlOp& op, int64_t elements) {
  common::Request request;
  request.set_request_type(common::Request::ALLREDUCE);
  request.set_request_rank(op.asker);
  request.set_tensor_name(NameOf(op));
  request.set_tensor_type(SweepOf(op.kind) >= 0 ? common::DataType::HOROVOD_FLOAT32
                                                : common::DataType::HOROVOD_FLOAT64);
  request.set_device(CPU_DEVICE_ID);
  request.set_group_id(NULL_GROUP_ID);
  request.set_prescale_factor(1.0);
  request.set_postscale_factor(1.0);
  request.set_reduce_op(SweepOf(op.kind) >= 0 ? common::ReduceOp::SUM : common::ReduceOp::MAX);
  request.add_tensor_shape(elements);
  return request;
}

common::TensorTableEntry EntryFor(const std::string& name, const std::shared_ptr<CpuTensor>& buffer,
                                  int32_t process_set_id) {
  common::TensorTableEntry entry;
  entry.tensor_name = name;
  entry.context = CpuContext();
  entry.tensor = buffer;
  entry.output = buffer;
  entry.process_set_id = process_set_id;
  entry.device = CPU_DEVICE_ID;
  entry.callback = [](const common::Status&) {};
  return entry;
}

}  // namespace horovod::paceline
