#include "bridge/collectives/flight.h"

#include <algorithm>
#include <stdexcept>

namespace horovod::paceline {

namespace {

constexpr int64_t kAlign_bytes = 64;

}  // namespace

Room PackingSpace::Take(int64_t bytes) {
  bytes = (bytes + kAlign_bytes - 1) / kAlign_bytes * kAlign_bytes;
  if (taken_bytes_ == 0 && bytes > size_bytes_) {
    memory_.reset();
    size_bytes_ = 0;
    const auto wanted_bytes = std::max(bytes, limit_bytes_);
    memory_ = MakeMemory(wanted_bytes);
    size_bytes_ = wanted_bytes;
  }
  if (taken_bytes_ + bytes > size_bytes_) {
    return nullptr;
  }
  taken_bytes_ += bytes;
  ++rooms_;
  return {memory_.get() + (taken_bytes_ - bytes), [this](uint8_t* /*room*/) {
            if (--rooms_ == 0) {
              taken_bytes_ = 0;
            }
          }};
}

Room Flight::MakeRoom(int64_t bytes) {
  auto room = space_.Take(bytes);
  if (room == nullptr) {
    if (!Finish()) {
      throw std::runtime_error("Messages before this one failed.");
    }
    room = space_.Take(bytes);
    if (room == nullptr) {
      throw std::logic_error("Nothing is in flight, and its packing space is taken.");
    }
  }
  return room;
}

bool Flight::Finish() {
  if (idle() && messages_.empty()) {
    return transport_ != nullptr;
  }
  try {
    engine_->Finish();
  } catch (const std::exception& error) {
    Fail(error);
    return false;
  }
  messages_.clear();
  return true;
}

void Flight::Fail(const std::exception& error) {
  End();
  FailMessages(end_.others(error));
}

void Flight::FailHere(const std::exception& error) {
  const auto why = end_.here(error);
  End();
  FailMessages(why);
}

void Flight::End() {
  if (transport_ != nullptr) {
    transport_->Abort();
    transport_.reset();  // nobody touches memory of messages from here on
  }
  engine_.reset();
}

void Flight::FailMessages(const std::string& why) {
  const auto status = common::Status::UnknownError(why);
  for (const auto& message : messages_) {
    message->Fail(status);
  }
  messages_.clear();
}

}  // namespace horovod::paceline
