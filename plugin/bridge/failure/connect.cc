#include <cstdint>
#include <exception>
#include <mutex>
#include <string>

#include "bridge/c_boundary.h"
#include "bridge/copy_text.h"
#include "bridge/failure/failure.h"
#include "bridge/failure/forked.h"
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
  RememberProcess();
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

// The message of the exception that ended the last initialisation, empty if none did.
void horovod_paceline_connect_error(char* error, int64_t capacity) try {
  std::lock_guard<std::mutex> lock(horovod::paceline::connect_error_mutex);
  horovod::paceline::CopyText(horovod::paceline::ConnectError(), error, capacity);
}
PACELINE_CATCH()

// Why the world of this process failed, empty if it did not.
void horovod_paceline_why_failed(char* error, int64_t capacity) try {
  horovod::paceline::CopyText(horovod::paceline::WhyFailed(), error, capacity);
}
PACELINE_CATCH()
}
