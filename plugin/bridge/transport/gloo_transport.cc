#include "bridge/transport/gloo_transport.h"

#include <stdexcept>
#include <utility>

#include "gloo/transport/context.h"

namespace horovod::paceline {

namespace {

// Memory of operations without bytes.
uint8_t nothing = 0;

Completion Ended(uint64_t operation, const std::exception_ptr& error) {
  if (error == nullptr) {
    return {operation, "", false};
  }
  try {
    std::rethrow_exception(error);
  } catch (const gloo::transport::OtherMessage& failure) {  // of the hook `lengths`
    return {operation, failure.what(), true, failure.expected, failure.found};
  } catch (const std::exception& failure) {
    return {operation, failure.what(), false};
  } catch (...) {
    return {operation, "unknown", false};
  }
}

}  // namespace

GlooTransport::~GlooTransport() {
  if (!in_flight_.empty()) {  // data that comes for a buffer that is gone would stop its connection for good
    context_->closeConnections();
  }
  in_flight_.clear();  // waits for threads that tell of them
}

// It completes in the middle of its own send or receive, and who waits may let go of it there and then.
std::shared_ptr<GlooTransport::Buffer> GlooTransport::Make(uint64_t operation, void* data, size_t bytes) {
  std::shared_ptr<Buffer> buffer = context_->createUnboundBuffer(bytes == 0 ? &nothing : data, bytes);
  buffer->terms = terms_;
  buffer->on_completion = [this, operation](const std::exception_ptr& error) { Completed(operation, error); };
  std::vector<std::shared_ptr<Buffer>> ended;
  const std::lock_guard<std::mutex> lock(mutex_);
  in_flight_[operation] = buffer;
  ended.swap(ended_);
  return buffer;
}

uint64_t GlooTransport::Send(int32_t peer, uint64_t tag, const void* data, size_t bytes) {
  const auto operation = ++made_;
  // Gloo has one kind of buffer; one that is sent from is only read.
  const auto buffer = Make(operation, const_cast<void*>(data), bytes);
  try {
    buffer->send(peer, kind_ | tag, 0, bytes);
  } catch (const std::exception&) {
    Completed(operation, std::current_exception());
  }
  return operation;
}

uint64_t GlooTransport::Receive(int32_t peer, uint64_t tag, void* data, size_t bytes) {
  const auto operation = ++made_;
  const auto buffer = Make(operation, data, bytes);
  try {
    buffer->recv(peer, kind_ | tag, 0, bytes);
  } catch (const std::exception&) {
    Completed(operation, std::current_exception());
  }
  return operation;
}

// With a lock of Gloo's held.
void GlooTransport::Completed(uint64_t operation, const std::exception_ptr& error) {
  auto completion = Ended(operation, error);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    completions_.push_back(std::move(completion));
    changed_.notify_one();
  }
  if (ring_) {
    ring_();
  }
}

bool GlooTransport::Wait(Clock::time_point until, Completion& completion) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (completions_.empty()) {
      if (until <= Clock::now()) {
        return false;
      }
      changed_.wait_until(lock, until, [this] { return woken_ || !completions_.empty(); });
      woken_ = false;
      if (completions_.empty()) {
        return false;
      }
    }
    completion = std::move(completions_.front());
    completions_.pop_front();
    // A failure may be told of more than once.
    if (const auto found = in_flight_.find(completion.operation); found != in_flight_.end()) {
      ended_.push_back(std::move(found->second));
      in_flight_.erase(found);
      return true;
    }
  }
}

void GlooTransport::Wake() {
  const std::lock_guard<std::mutex> lock(mutex_);
  woken_ = true;
  changed_.notify_one();
}

void GlooTransport::Abort() { context_->closeConnections(); }

void GlooTransport::Leave() {
  std::unordered_map<uint64_t, std::shared_ptr<Buffer>> in_flight;
  const std::lock_guard<std::mutex> lock(mutex_);
  in_flight.swap(in_flight_);
}

}  // namespace horovod::paceline
