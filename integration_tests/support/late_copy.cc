// A tensor in CPU memory that is filled some time after it was handed in, with an event that tells when: what
// Horovod's face for PyTorch hands in for a tensor on a GPU where HOROVOD_GPU_OPERATIONS was not set.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "horovod/common/operations.h"

using namespace horovod::common;

namespace {

class Values : public Tensor {
 public:
  explicit Values(int64_t count) : values(static_cast<size_t>(count)) { shape_.AddDim(count); }
  const DataType dtype() const override { return HOROVOD_FLOAT32; }
  const TensorShape shape() const override { return shape_; }
  const void* data() const override { return values.data(); }
  int64_t size() const override { return static_cast<int64_t>(values.size() * sizeof(float)); }

  std::vector<float> values;

 private:
  TensorShape shape_;
};

class Copied : public ReadyEvent {
 public:
  bool Ready() const override { return done; }
  std::atomic<bool> done{false};
};

}  // namespace

extern "C" {

// Sums `count` elements of `value` over the ranks of `process_set`, filled `after_s` later, under `name`; the answer is
// in `out`. Returns 0, or -1 and in `error` why not. Waits for the answer for `limit_s`. `device`: -1 for CPU memory;
// otherwise the operation is one on that GPU, as of a Horovod with operations for GPUs.
int late_allreduce(const char* name, int process_set, int device, float value, int64_t count, double after_s,
                   double limit_s, float* out, char* error, int64_t capacity) {
  const auto tensor = std::make_shared<Values>(count);
  const auto copied = std::make_shared<Copied>();
  ReadyEventList events;
  events.AddReadyEvent(copied);
  const auto answer = std::make_shared<std::promise<Status>>();
  auto answered = answer->get_future();
  std::thread copy([tensor, copied, value, after_s] {
    std::this_thread::sleep_for(std::chrono::duration<double>(after_s));
    std::fill(tensor->values.begin(), tensor->values.end(), value);
    copied->done = true;
  });
  auto status = EnqueueTensorAllreduce(
      nullptr, tensor, tensor, events, name, device, [answer](const Status& one) { answer->set_value(one); },
      ReduceOp::SUM, 1.0, 1.0, process_set);
  if (status.ok()) {
    const bool in_time = answered.wait_for(std::chrono::duration<double>(limit_s)) == std::future_status::ready;
    status = in_time ? answered.get() : Status::InvalidArgument("no answer");
  }
  copy.join();
  std::copy(tensor->values.begin(), tensor->values.end(), out);
  std::strncpy(error, status.reason().c_str(), static_cast<size_t>(capacity) - 1);
  return status.ok() ? 0 : -1;
}
}
