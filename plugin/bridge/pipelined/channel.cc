#include "bridge/pipelined/channel.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "horovod/common/operations.h"

namespace horovod::paceline {

namespace {

using ::paceline::core::Pipeline;

}  // namespace

Channel::Channel(std::string name, int32_t k, int64_t sync_calls)
    : name_(std::move(name)),
      k_(k),
      sync_calls_(sync_calls),
      pipeline_(k),
      slots_(static_cast<size_t>(k - 1)),
      failed_(common::Status::OK()) {}

bool Channel::TakeSync() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (sync_calls_ == 0) {
    return false;
  }
  --sync_calls_;
  return true;
}

void Channel::SyncNext(int64_t calls) {
  std::lock_guard<std::mutex> lock(mutex_);
  sync_calls_ = calls;
}

common::Status Channel::Fits(const common::Tensor& tensor) const {
  for (const int32_t number : pipeline_.Filled()) {
    const auto& slot = *slots_[static_cast<size_t>(number)];
    if (slot.dtype() != tensor.dtype() || slot.shape() != tensor.shape()) {
      return common::Status::InvalidArgument(
          "Pipelined exchange of " + name_ + ": expected " + common::DataType_Name(slot.dtype()) + " " +
          slot.shape().DebugString() + " as in the step whose gradient is in flight, found " +
          common::DataType_Name(tensor.dtype()) + " " + tensor.shape().DebugString() +
          ". Call drain() on all ranks before the shape or type of a gradient changes.");
    }
  }
  return common::Status::OK();
}

void Channel::Exchange(const Pipeline::Todo& todo, const common::Tensor& tensor, common::Tensor& output) {
  auto& slot = slots_[static_cast<size_t>(todo.exchange)];
  if (slot == nullptr || slot->dtype() != tensor.dtype() || slot->shape() != tensor.shape()) {
    slot = std::make_shared<CpuTensor>(tensor.dtype(), tensor.shape());
  }
  const auto bytes = static_cast<size_t>(tensor.size());
  if (todo.answered) {
    SwapHeld(tensor, output, slot->bytes(), bytes);
    return;
  }
  std::memcpy(slot->bytes(), tensor.data(), bytes);
  std::memset(BytesOf(output), 0, bytes);
}

common::Status Channel::Call(const Reducing& reducing, const std::shared_ptr<common::Tensor>& tensor,
                             const std::shared_ptr<common::Tensor>& output, common::StatusCallback callback) {
  After after;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failed_.ok()) {
      return failed_;
    }
    if (pipeline_.waiting()) {
      return common::DUPLICATE_NAME_ERROR;
    }
    auto fits = Fits(*tensor);
    if (!fits.ok()) {
      return fits;
    }
    reducing_ = reducing;
    const auto todo = pipeline_.Call();
    if (pipeline_.waiting()) {
      waiting_ = {tensor, output, std::move(callback)};
      return common::Status::OK();
    }
    Exchange(todo, *tensor, *output);
    after = {todo.start, std::move(callback), common::Status::OK()};
  }
  Do(after);
  return common::Status::OK();
}

void Channel::Performed(const common::Status& status) {
  Waiting done;  // let go without the lock: PyTorch's tensors may want the interpreter's, whose holder may want ours
  After after;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto todo = pipeline_.Performed();
    if (!status.ok()) {
      // Nothing of this name is in flight any more: wakes waiting threads.
      failed_ = status;
      pipeline_ = Pipeline(k_);
      done = std::exchange(waiting_, {});
      after = {-1, std::move(done.callback), failed_};
    } else if (todo.exchange >= 0) {
      Exchange(todo, *waiting_.tensor, *waiting_.output);
      done = std::exchange(waiting_, {});
      after = {todo.start, std::move(done.callback), status};
    } else {
      after = {todo.start, nullptr, status};
    }
  }
  performed_.notify_all();
  Do(after);
}

void Channel::Do(const After& after) {
  if (after.start >= 0) {
    std::shared_ptr<common::Tensor> slot;
    Reducing reducing;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      slot = slots_[static_cast<size_t>(after.start)];
      reducing = reducing_;
    }
    std::vector<std::shared_ptr<common::OpContext>> contexts = {CpuContext()};
    std::vector<std::shared_ptr<common::Tensor>> tensors = {slot}, outputs = {slot};
    std::vector<common::ReadyEventList> ready(1);
    std::vector<std::string> names = {name_};
    const auto self = shared_from_this();
    std::vector<common::StatusCallback> callbacks = {[self](const common::Status& status) { self->Performed(status); }};
    const auto status =
        common::EnqueueTensorAllreduces(contexts, tensors, outputs, ready, names, CPU_DEVICE_ID, callbacks, reducing.op,
                                        reducing.prescale, reducing.postscale, reducing.process_set_id);
    if (!status.ok()) {
      Performed(status);
    }
  }
  if (after.callback) {
    after.callback(after.status);
  }
}

common::Status Channel::Settle(double limit_s) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool quiet = performed_.wait_for(lock, std::chrono::duration<double>(limit_s),
                                         [&] { return !failed_.ok() || pipeline_.quiet(); });
  if (!failed_.ok()) {
    return failed_;
  }
  return quiet ? common::Status::OK()
               : common::Status::InvalidArgument("Pipelined exchange of " + name_ + ": its gradient in flight " +
                                                 "has not been reduced in time. All ranks must make the same steps.");
}

bool Channel::quiet() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return !failed_.ok() || pipeline_.quiet();
}

std::vector<std::shared_ptr<CpuTensor>> Channel::Results() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<CpuTensor>> results;
  for (const int32_t number : pipeline_.Filled()) {
    results.push_back(slots_[static_cast<size_t>(number)]);
  }
  return results;
}

void Channel::Clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  pipeline_.Clear();
}

bool Channel::Put(std::shared_ptr<CpuTensor> result) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int32_t slot = pipeline_.Put();
  if (slot >= 0) {
    slots_[static_cast<size_t>(slot)] = std::move(result);
  }
  return slot >= 0;
}

}  // namespace horovod::paceline
