#include <atomic>
#include <chrono>
#include <thread>

#include "core/waiting.h"
#include "doctest/doctest.h"

using paceline::core::WaitUntil;
using std::chrono::milliseconds;

namespace {

// Stands for an event of a GPU: another thread lets it happen.
class Event {
 public:
  bool Ready() {
    ++looks_;
    return ready_;
  }
  void Happen() { ready_ = true; }
  int looks() const { return looks_; }

 private:
  std::atomic<bool> ready_{false};
  std::atomic<int> looks_{0};
};

}  // namespace

TEST_CASE("what has happened is seen at the first look, without any limit") {
  Event event;
  event.Happen();
  CHECK(WaitUntil([&] { return event.Ready(); }, milliseconds(0)));
  CHECK(event.looks() == 1);
}

TEST_CASE("what another thread wrote before the event is there after the wait") {
  Event event;
  int copied = 0;
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(20));
    copied = 7;
    event.Happen();
  });
  CHECK(WaitUntil([&] { return event.Ready(); }, milliseconds(60'000)));
  CHECK(copied == 7);
  CHECK(event.looks() > 1);
  other.join();
}

TEST_CASE("an event that never happens ends the wait at its limit") {
  Event event;
  CHECK_FALSE(WaitUntil([&] { return event.Ready(); }, milliseconds(5)));
  CHECK(event.looks() > 1);
}
