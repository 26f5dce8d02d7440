#include "bridge/fusion/calls.h"

#include <sstream>
#include <stdexcept>
#include <utility>

namespace horovod {
namespace paceline {

namespace {

constexpr char kPrefix[] = "paceline.call.";
constexpr size_t kPrefixLength = sizeof(kPrefix) - 1;

}  // namespace

bool IsCall(const std::string& name) { return name.compare(0, kPrefixLength, kPrefix) == 0; }

std::string NameOf(const Call& call) {
  std::ostringstream name;
  name << kPrefix << static_cast<int32_t>(call.kind) << '.' << call.caller << '.' << call.number << '.' << call.part;
  return name.str();
}

Call CallOf(const std::string& name) {
  std::istringstream text(name.substr(kPrefixLength));
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

common::TensorTableEntry EntryFor(const std::string& name, const std::shared_ptr<HostTensor>& buffer,
                                  int32_t process_set_id) {
  common::TensorTableEntry entry;
  entry.tensor_name = name;
  entry.context = HostContext();
  entry.tensor = buffer;
  entry.output = buffer;
  entry.process_set_id = process_set_id;
  entry.device = CPU_DEVICE_ID;
  entry.callback = [](const common::Status&) {};
  return entry;
}

}  // namespace paceline
}  // namespace horovod
