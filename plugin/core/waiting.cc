#include "core/waiting.h"

#include <algorithm>
#include <thread>

namespace paceline::core {

namespace {

constexpr std::chrono::microseconds kFirstPause{10};
constexpr std::chrono::microseconds kLongestPause{1000};

}  // namespace

bool WaitUntil(const std::function<bool()>& done, std::chrono::nanoseconds limit) {
  if (done()) {
    return true;
  }
  const auto end = std::chrono::steady_clock::now() + limit;
  for (auto pause = kFirstPause; std::chrono::steady_clock::now() < end; pause = std::min(2 * pause, kLongestPause)) {
    std::this_thread::sleep_for(pause);
    if (done()) {
      return true;
    }
  }
  return done();
}

}  // namespace paceline::core
