#include "bridge/agree.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <sstream>

#include "bridge/cpu_tensor.h"
#include "bridge/reserved_names.h"
#include "bridge/waking.h"
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

// All ranks call it with tensors of one type and size, which hold the largest of each value then.
common::Status Reduce(const std::string& name, int32_t process_set_id, const std::shared_ptr<CpuTensor>& tensor,
                      double limit_s) {
  const auto waiting = std::make_shared<Waiting>();
  std::vector<std::shared_ptr<common::OpContext>> contexts = {CpuContext()};
  std::vector<std::shared_ptr<common::Tensor>> tensors = {tensor}, outputs = {tensor};
  std::vector<common::ReadyEventList> ready(1);
  std::vector<std::string> names = {name};
  std::vector<common::StatusCallback> callbacks = {[waiting, tensor](const common::Status& status) {
    std::lock_guard<std::mutex> lock(waiting->mutex);
    waiting->performed = true;
    waiting->status = status;
    waiting->changed.notify_all();
  }};
  auto enqueued = common::EnqueueTensorAllreduces(contexts, tensors, outputs, ready, names, CPU_DEVICE_ID, callbacks,
                                                  common::ReduceOp::MAX, 1.0, 1.0, process_set_id);
  if (!enqueued.ok()) {
    return enqueued;
  }
  NotifyWaitedFor();
  std::unique_lock<std::mutex> lock(waiting->mutex);
  if (!waiting->changed.wait_for(lock, std::chrono::duration<double>(limit_s), [&] { return waiting->performed; })) {
    std::ostringstream reason;
    reason << "not all ranks came within " << limit_s << " s";
    return common::Status::Aborted(reason.str());
  }
  return waiting->status;
}

}  // namespace

MinMax AgreeMinMax(const std::string& name, int32_t process_set_id, const std::vector<int64_t>& values,
                   double limit_s) {
  const size_t count = values.size();
  // The largest of the numbers, and of their opposites; both above 0, which is what a rank that has joined gives: it
  // says nothing.
  auto tensor = std::make_shared<CpuTensor>(common::DataType::HOROVOD_FLOAT64, static_cast<int64_t>(2 * count));
  for (size_t n = 0; n < count; ++n) {
    tensor->values()[n] = static_cast<double>(kAgreedBelow + values[n]);
    tensor->values()[count + n] = static_cast<double>(kAgreedBelow - values[n]);
  }
  MinMax agreed;
  agreed.status = Reduce(std::string(kAgreementNames) + name, process_set_id, tensor, limit_s);
  if (agreed.status.ok()) {
    for (size_t n = 0; n < count; ++n) {
      agreed.most.push_back(static_cast<int64_t>(tensor->values()[n]) - kAgreedBelow);
      agreed.least.push_back(kAgreedBelow - static_cast<int64_t>(tensor->values()[count + n]));
    }
  }
  return agreed;
}

PingTime Ping(int32_t process_set_id, const PingPair& pair, int64_t bytes, double limit_s) {
  const auto elements = std::max<int64_t>(1, bytes / static_cast<int64_t>(sizeof(double)));
  auto tensor = std::make_shared<CpuTensor>(common::DataType::HOROVOD_FLOAT64, elements);
  const auto name = std::string(kPingNames) + std::to_string(pair.first) + "." + std::to_string(pair.second) + "." +
                    std::to_string(pair.rounds) + ".";
  PingTime measured;
  measured.status = Reduce(name, process_set_id, tensor, limit_s);
  measured.seconds = tensor->values()[0] / (2 * pair.rounds);
  return measured;
}

}  // namespace horovod::paceline
