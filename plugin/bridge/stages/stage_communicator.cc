#include "bridge/stages/stage_communicator.h"

#include <chrono>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace horovod::paceline {

namespace {

using Clock = Transport::Clock;

constexpr auto* kOtherWorld =
    "Horovod was initialised again since this communicator was opened. Open another one after each hvd.init().";
constexpr auto* kShutDown =
    "Horovod was shut down, by this rank or by one that came to its end. Close the communicator on all ranks before "
    "that.";
constexpr auto* kClosed = "The communicator is closed.";

Clock::time_point In(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

StageCommunicator::StageCommunicator(std::unique_ptr<Transport> transport, CommunicatorPlace place, const WorldEnd& end)
    : place_(std::move(place)),
      end_(end),
      rank_(transport->rank()),
      size_(transport->size()),
      limit_s_(std::chrono::duration<double>(transport->limit()).count()),
      transport_(std::move(transport)),
      poster_(std::make_unique<::paceline::core::Worker>()) {}

int64_t StageCommunicator::Send(int32_t peer, uint64_t tag, const void* data, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Post({peer, tag, bytes, false}, const_cast<void*>(data));  // only read
}

int64_t StageCommunicator::Receive(int32_t peer, uint64_t tag, void* data, size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Post({peer, tag, bytes, true}, data);
}

int64_t StageCommunicator::Post(const Operation& operation, void* data) {
  if (!Usable(Doing(operation))) {
    return -1;
  }
  in_flight_[++made_] = operation;
  poster_->Do([transport = transport_.get(), operation, data] {
    operation.receive ? transport->Receive(operation.peer, operation.tag, data, operation.bytes)
                      : transport->Send(operation.peer, operation.tag, data, operation.bytes);
  });
  return static_cast<int64_t>(made_);
}

StageCommunicator::Outcome StageCommunicator::Wait(int64_t operation, double limit_s) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto number = static_cast<uint64_t>(operation);
  const auto found = in_flight_.find(number);
  if (!Usable(found == in_flight_.end() ? "with nothing to wait for" : Doing(found->second))) {
    return Outcome::kFailed;
  }
  for (const auto until = In(limit_s); in_flight_.count(number) > 0;) {
    if (!Hear(until)) {
      return Outcome::kNotYet;
    }
    if (transport_ == nullptr) {
      return Outcome::kFailed;
    }
  }
  return Outcome::kDone;
}

bool StageCommunicator::Hear(Clock::time_point until) {
  Completion completion;
  if (!transport_->Wait(until, completion)) {
    return false;
  }
  const auto found = in_flight_.find(completion.operation);
  if (completion.error.empty()) {
    in_flight_.erase(found);
  } else if (!Over(Doing(found->second))) {
    Fail(Doing(found->second), completion.error, completion.of_here ? end_.here : end_.others);
  }
  return true;
}

bool StageCommunicator::Usable(const std::string& doing) {
  while (transport_ != nullptr && Hear(Clock::now())) {
  }
  return transport_ != nullptr && !Over(doing);
}

bool StageCommunicator::Over(const std::string& doing) {
  if (forgotten_) {
    Drop(kOtherWorld);
  } else if (end_.over()) {
    const auto why = end_.why();
    end_.settle();
    shut_down_ = why.empty();
    Drop(Self() + ", " + doing + ": " + (why.empty() ? kShutDown : why));
  }
  return transport_ == nullptr;
}

void StageCommunicator::Abort(int64_t operation, double limit_s) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = in_flight_.find(static_cast<uint64_t>(operation));
  if (transport_ == nullptr || found == in_flight_.end()) {
    return;
  }
  std::ostringstream error;
  error << "that has not happened within " << limit_s
        << " s, and no rank is known to have died or stopped. Does that rank send and receive the same, or does it "
           "compute for longer (HOROVOD_GLOO_TIMEOUT_SECONDS)?";
  Fail(Doing(found->second), error.str(), end_.others);
}

void StageCommunicator::NotifyFailure(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  end_.here(std::runtime_error(text));
  Drop(Self() + " could not go on: " + text);
}

void StageCommunicator::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Usable("closing its communicator") && !in_flight_.empty()) {
    Fail("closing its communicator",
         "it is still " + Doing(in_flight_.begin()->second) + ". Wait for all messages before that.", end_.here);
  }
  if (transport_ != nullptr) {
    Drop(kClosed);
  }
}

void StageCommunicator::Forget() {
  forgotten_ = true;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock() && transport_ != nullptr) {  // else its thread finds out as soon as it looks
    Drop(kOtherWorld);
  }
}

std::string StageCommunicator::Why() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return why_;
}

bool StageCommunicator::ShutDown() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return shut_down_;
}

void StageCommunicator::Fail(const std::string& doing, const std::string& error, const WorldEnd::Explain& explain) {
  const auto begin = Self() + ", " + doing + ": ";
  const auto why = explain(std::runtime_error(begin + error));
  if (why.empty() && Over(doing)) {
    return;
  }
  Drop(why == begin + error ? why : begin + why);
}

void StageCommunicator::Drop(const std::string& why) {
  poster_.reset();
  transport_.reset();
  in_flight_.clear();
  if (why_.empty()) {
    why_ = why;
  }
}

std::string StageCommunicator::Name(int32_t peer) const {
  const auto name = "rank " + std::to_string(place_.ranks[static_cast<size_t>(peer)]);
  return place_.process_set_id == 0
             ? name
             : name + " (" + std::to_string(peer) + " of process set " + std::to_string(place_.process_set_id) + ")";
}

std::string StageCommunicator::Self() const {
  auto name = Name(rank_);
  name[0] = 'R';
  return name;
}

std::string StageCommunicator::Doing(const Operation& operation) const {
  return "waiting for " + Name(operation.peer) + " to " + (operation.receive ? "send " : "take ") +
         std::to_string(operation.bytes) + " bytes (tag " + std::to_string(operation.tag) + ")";
}

}  // namespace horovod::paceline
