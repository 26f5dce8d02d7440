#include <string>
#include <vector>

#include "core/fusion/monitor.h"
#include "doctest/doctest.h"

using paceline::core::Monitor;
using paceline::core::ReducedTensor;

namespace {

constexpr int64_t kMs = 1'000'000;

// A step that begins at `start`: tensor n appears 10 n ms later, and all are reduced together until 5 ms after that.
void Make(Monitor& monitor, const std::vector<ReducedTensor>& tensors, int64_t start_ms) {
  int64_t at_ms = start_ms;
  for (const auto& tensor : tensors) {
    monitor.Arrived(tensor.name, at_ms * kMs);
    at_ms += 10;
  }
  monitor.Coordinated((at_ms - 10) * kMs, (at_ms - 9) * kMs);
  monitor.Reduced(tensors, 12, (at_ms - 9) * kMs, (at_ms - 5) * kMs);
}

}  // namespace

TEST_CASE("tensors are numbered in the order in which they were first reduced") {
  Monitor monitor;
  monitor.Arrived("b", 1);  // not reduced yet: unknown
  CHECK(monitor.NumberOf("b") == -1);
  monitor.Reduced({{"b", 4, 0}, {"a", 8, 1}}, 12, 0, 1);
  monitor.Reduced({{"c", 4, 0}, {"a", 16, 1}}, 20, 1, 2);
  CHECK(monitor.NumberOf("b") == 0);
  CHECK(monitor.NumberOf("a") == 1);
  CHECK(monitor.NumberOf("c") == 2);
  CHECK(monitor.tensors()[1].bytes == 16);
  CHECK(monitor.messages().size() == 2);
  CHECK(monitor.messages()[1].bytes == 20);
}

TEST_CASE("medians over the complete steps") {
  Monitor monitor;
  const std::vector<ReducedTensor> tensors = {{"x", 4, 0}, {"y", 4, 0}, {"z", 4, 0}};
  monitor.Reduced(tensors, 12, 0, 1);
  for (int64_t step = 0; step < 8; ++step) {
    Make(monitor, tensors, 100 * step);
  }
  const auto measured = monitor.Measure();
  CHECK(monitor.steps() == 8);
  CHECK(measured.steps == 7);  // the last one may not be over
  CHECK(measured.ready_s[0] == doctest::Approx(0));
  CHECK(measured.ready_s[1] == doctest::Approx(0.010));
  CHECK(measured.ready_s[2] == doctest::Approx(0.020));
  CHECK(measured.step_s == doctest::Approx(0.100));
  CHECK(measured.exposed_s == doctest::Approx(0.005));
  CHECK(measured.coordination_s == doctest::Approx(0.001));
}

TEST_CASE("a tensor that is missing in some steps is irregular") {
  Monitor monitor;
  const std::vector<ReducedTensor> all = {{"x", 4, 0}, {"y", 4, 0}}, some = {{"x", 4, 0}};
  monitor.Reduced(all, 8, 0, 1);
  for (int64_t step = 0; step < 20; ++step) {
    Make(monitor, step % 3 == 0 ? some : all, 100 * step);
  }
  const auto measured = monitor.Measure();
  CHECK(measured.ready_s[0] >= 0);
  CHECK(measured.ready_s[1] < 0);
}

TEST_CASE("values that are averaged when the gradients are there are no gradients") {
  Monitor monitor;
  const std::vector<ReducedTensor> gradients = {{"x", 400, 0}, {"y", 4, 0}};
  const std::vector<ReducedTensor> loss = {{"loss", 4, 0}}, accuracy = {{"accuracy", 8, 0}};
  monitor.Reduced({gradients[0], gradients[1], loss[0], accuracy[0]}, 416, 0, 1);
  for (int64_t step = 0; step < 12; ++step) {
    const int64_t start_ms = 100 * step;
    Make(monitor, gradients, start_ms);  // the last gradient appears at 10 and has been reduced at 15
    monitor.Arrived("loss", (start_ms + 30) * kMs);
    monitor.Arrived("accuracy", (start_ms + 31) * kMs);
    monitor.Reduced(loss, 4, (start_ms + 32) * kMs, (start_ms + 40) * kMs);
    monitor.Reduced(accuracy, 8, (start_ms + 40) * kMs, (start_ms + 45) * kMs);
  }
  const auto measured = monitor.Measure();
  CHECK(measured.ready_s[0] == doctest::Approx(0));
  CHECK(measured.ready_s[1] == doctest::Approx(0.010));
  CHECK(measured.ready_s[2] < 0);
  CHECK(measured.ready_s[3] < 0);
  CHECK(measured.exposed_s == doctest::Approx(0.005));
}

TEST_CASE("a small gradient that comes last is a gradient") {
  Monitor monitor;
  const std::vector<ReducedTensor> tensors = {{"x", 400, 0}, {"y", 4, 0}};
  monitor.Reduced(tensors, 404, 0, 1);
  for (int64_t step = 0; step < 12; ++step) {
    Make(monitor, tensors, 100 * step);
  }
  CHECK(monitor.Measure().ready_s[1] == doctest::Approx(0.010));
}

TEST_CASE("nothing is known before a step is over, nor after a restart") {
  Monitor monitor;
  const std::vector<ReducedTensor> tensors = {{"x", 4, 0}};
  monitor.Reduced(tensors, 4, 0, 1);
  Make(monitor, tensors, 0);
  CHECK(monitor.Measure().steps == 0);
  CHECK(monitor.Measure().step_s < 0);
  Make(monitor, tensors, 100);
  CHECK(monitor.Measure().steps == 1);
  monitor.Restart();
  CHECK(monitor.Measure().steps == 0);
  CHECK(monitor.messages().empty());
  CHECK(monitor.NumberOf("x") == 0);
  // The running step goes on and is not measured.
  monitor.Reduced(tensors, 4, 0, 500 * kMs);
  Make(monitor, tensors, 600);
  CHECK(monitor.Measure().steps == 0);
  Make(monitor, tensors, 700);
  CHECK(monitor.Measure().exposed_s == doctest::Approx(0.005));
}

TEST_CASE("a restart in the middle of a step leaves steps where they begin") {
  Monitor monitor;
  const std::vector<ReducedTensor> tensors = {{"x", 4, 0}, {"y", 4, 0}};
  monitor.Reduced(tensors, 8, 0, 1);
  Make(monitor, tensors, 0);
  monitor.Arrived("x", 100 * kMs);
  monitor.Reduced({tensors[0]}, 4, 101 * kMs, 102 * kMs);
  monitor.Restart();
  CHECK(monitor.ReducedInRunningStep() == std::vector<bool>{true, false});
  CHECK(monitor.CameBeforeRunningStep() == std::vector<bool>{false, true});
  monitor.Arrived("y", 110 * kMs);
  monitor.Reduced({tensors[1]}, 4, 111 * kMs, 112 * kMs);
  CHECK(monitor.ReducedInRunningStep() == std::vector<bool>{true, true});
  for (int64_t step = 2; step < 5; ++step) {
    Make(monitor, tensors, 100 * step);
  }
  const auto measured = monitor.Measure();
  CHECK(measured.steps == 2);
  CHECK(measured.ready_s[0] == doctest::Approx(0));
  CHECK(measured.ready_s[1] == doctest::Approx(0.010));
}

TEST_CASE("steps watched from their middle on are brought into line where a program has waited for everything") {
  Monitor monitor;
  const std::vector<ReducedTensor> tensors = {{"x", 4, 0}, {"y", 4, 0}, {"z", 4, 0}};
  monitor.Reduced(tensors, 12, 0, 1);
  monitor.Arrived("z", 20 * kMs);  // x and y came before anybody watched
  monitor.Reduced(tensors, 12, 21 * kMs, 25 * kMs);
  for (int64_t step = 1; step < 6; ++step) {
    Make(monitor, tensors, 100 * step);
  }
  const auto measured = monitor.Measure();
  CHECK(measured.steps > 2);
  CHECK(measured.ready_s[0] == doctest::Approx(0));
  CHECK(measured.ready_s[1] == doctest::Approx(0.010));
  CHECK(measured.ready_s[2] == doctest::Approx(0.020));
}

TEST_CASE("memory is bounded") {
  Monitor monitor;
  for (size_t n = 0; n < Monitor::kMostTensors + 10; ++n) {
    monitor.Reduced({{"noname." + std::to_string(n), 4, 0}}, 4, 0, 1);
  }
  CHECK(monitor.tensors().size() == Monitor::kMostTensors);
  CHECK(monitor.messages().size() == Monitor::kMessages);
}
