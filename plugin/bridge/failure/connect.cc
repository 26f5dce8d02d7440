#include <exception>
#include <mutex>
#include <string>

#include "bridge/failure/failure.h"
#include "bridge/patches.h"
#include "horovod/common/logging.h"

namespace horovod::paceline {

namespace {

// Written by Horovod's background thread, read by the thread that called init().
std::mutex connect_error_mutex;
std::string& ConnectError() {
  static auto* error = new std::string;
  return *error;
}

}  // namespace

void Failure::BeginWorld() {
  ForgetFailure();
  std::lock_guard<std::mutex> lock(connect_error_mutex);
  ConnectError().clear();
}

bool Connect(const std::function<void()>& part) {
  using namespace ::horovod::common;  // the LOG macro names Horovod's classes without their namespace
  try {
    part();
    return true;
  } catch (const std::exception& error) {
    LOG(ERROR) << "Horovod could not connect to the other ranks: " << error.what();
    Fail(error);
    EndWatch();
    std::lock_guard<std::mutex> lock(connect_error_mutex);
    ConnectError() = WhyFailed();
    return false;
  }
}

}  // namespace horovod::paceline

extern "C" {

// Both are valid until this thread's next call.

// The message of the exception that ended the last initialisation, empty if none did.
const char* horovod_paceline_connect_error() {
  thread_local std::string copy;
  std::lock_guard<std::mutex> lock(horovod::paceline::connect_error_mutex);
  copy = horovod::paceline::ConnectError();
  return copy.c_str();
}

// Why the world of this process failed, empty if it did not.
const char* horovod_paceline_why_failed() {
  thread_local std::string copy;
  copy = horovod::paceline::WhyFailed();
  return copy.c_str();
}
}
