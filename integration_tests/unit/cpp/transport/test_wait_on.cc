// A wait that is not ended by a wake which came too late for the one before it.

#include <doctest/doctest.h>

#include <chrono>

#include "bridge/transport.h"

using horovod::paceline::Completion;
using horovod::paceline::Transport;

namespace {

// Is woken so many times before its operation completes; never, if that is negative.
class Woken : public Transport {
 public:
  explicit Woken(int times) : times_(times) {}

  int32_t rank() const override { return 0; }
  int32_t size() const override { return 2; }
  std::chrono::milliseconds limit() const override { return std::chrono::milliseconds(20); }
  uint64_t Send(int32_t /*peer*/, uint64_t /*tag*/, const void* /*data*/, size_t /*bytes*/) override { return 1; }
  uint64_t Receive(int32_t /*peer*/, uint64_t /*tag*/, void* /*data*/, size_t /*bytes*/) override { return 1; }
  bool Wait(Clock::time_point /*until*/, Completion& completion) override {
    completion.operation = 7;
    return times_ >= 0 && times_-- == 0;
  }
  void Abort() override {}

 private:
  int times_;
};

}  // namespace

TEST_CASE("a wake that was meant for another wait does not end one for a completion") {
  for (const int times : {0, 1, 5}) {
    Woken transport(times);
    Completion completion;
    CHECK(transport.WaitOn(Transport::Clock::now() + std::chrono::hours(1), completion));
    CHECK(completion.operation == 7);
  }
}

TEST_CASE("a wait that nothing ends is over at its time") {
  Woken transport(-1);
  Completion completion;
  const auto until = Transport::Clock::now() + transport.limit();
  CHECK_FALSE(transport.WaitOn(until, completion));
  CHECK(Transport::Clock::now() >= until);
}
