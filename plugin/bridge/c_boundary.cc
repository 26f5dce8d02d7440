#include "bridge/c_boundary.h"

#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>

namespace horovod::paceline {

namespace {

// No string: memory may have run out, and threads may call while others end.
thread_local std::array<char, 1024> last_error{};

void Copy(const char* text, char* to, int64_t capacity) noexcept {
  if (capacity > 0) {
    std::snprintf(to, static_cast<size_t>(capacity), "%s", text);
  }
}

}  // namespace

void CaughtAtBoundary(char* error, int64_t capacity) noexcept {
  try {
    throw;
  } catch (const std::exception& caught) {
    Copy(*caught.what() == '\0' ? "an error without a message" : caught.what(), error, capacity);
  } catch (...) {
    Copy("an error of an unknown type", error, capacity);
  }
}

void CaughtAtBoundary() noexcept { CaughtAtBoundary(last_error.data(), last_error.size()); }

void TakeError(char* error, int64_t capacity) noexcept {
  Copy(last_error.data(), error, capacity);
  last_error[0] = '\0';
}

}  // namespace horovod::paceline
