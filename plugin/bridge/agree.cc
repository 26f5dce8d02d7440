#include "bridge/agree.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <sstream>

#include "bridge/cpu_tensor.h"
#include "bridge/reserved_names.h"
#include "horovod/common/operations.h"

namespace horovod::paceline {

namespace {

// Outlives a caller that has given up: the operation may still be performed.
struct Waiting {
  std::mutex mutex;  // protects what follows
  std::condition_variable changed;
  bool performed = false;
  common::Status status = common::Status::OK();
};

}  // namespace

MinMax AgreeMinMax(const std::string& name, int32_t process_set_id, const std::vector<int64_t>& values,
                   double limit_s) {
  const size_t count = values.size();
  // The largest of the numbers, and of their opposites.
  auto tensor = std::make_shared<CpuTensor>(common::DataType::HOROVOD_FLOAT64, static_cast<int64_t>(2 * count));
  for (size_t n = 0; n < count; ++n) {
    tensor->values()[n] = static_cast<double>(values[n]);
    tensor->values()[count + n] = -static_cast<double>(values[n]);
  }
  const auto waiting = std::make_shared<Waiting>();
  std::vector<std::shared_ptr<common::OpContext>> contexts = {CpuContext()};
  std::vector<std::shared_ptr<common::Tensor>> tensors = {tensor}, outputs = {tensor};
  std::vector<common::ReadyEventList> ready(1);
  std::vector<std::string> names = {std::string(kAgreementNames) + name};
  std::vector<common::StatusCallback> callbacks = {[waiting, tensor](const common::Status& status) {
    std::lock_guard<std::mutex> lock(waiting->mutex);
    waiting->performed = true;
    waiting->status = status;
    waiting->changed.notify_all();
  }};
  MinMax agreed;
  agreed.status = common::EnqueueTensorAllreduces(contexts, tensors, outputs, ready, names, CPU_DEVICE_ID, callbacks,
                                                  common::ReduceOp::MAX, 1.0, 1.0, process_set_id);
  if (!agreed.status.ok()) {
    return agreed;
  }
  std::unique_lock<std::mutex> lock(waiting->mutex);
  if (!waiting->changed.wait_for(lock, std::chrono::duration<double>(limit_s), [&] { return waiting->performed; })) {
    std::ostringstream reason;
    reason << "not all ranks came within " << limit_s << " s";
    agreed.status = common::Status::Aborted(reason.str());
    return agreed;
  }
  agreed.status = waiting->status;
  if (agreed.status.ok()) {
    for (size_t n = 0; n < count; ++n) {
      agreed.most.push_back(static_cast<int64_t>(tensor->values()[n]));
      agreed.least.push_back(-static_cast<int64_t>(tensor->values()[count + n]));
    }
  }
  return agreed;
}

}  // namespace horovod::paceline
