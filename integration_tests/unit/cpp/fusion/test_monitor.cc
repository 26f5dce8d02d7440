#include <cmath>
#include <string>
#include <vector>

#include "core/fusion/monitor.h"
#include "doctest/doctest.h"

using paceline::core::Monitor;
using paceline::core::ReducedTensor;
using paceline::core::agreed::MessageBegun;
using paceline::core::agreed::RoundEnded;
using paceline::core::local::MessageEnded;

namespace {

constexpr int64_t kMs = 1'000'000;

void Arrived(Monitor& monitor, const std::string& name, int64_t at_ns) {
  monitor.On(paceline::core::local::Arrival{name, at_ns});
}

// A message that ends before another one begins.
void Reduced(Monitor& monitor, const std::vector<ReducedTensor>& tensors, int64_t start_ns, int64_t end_ns) {
  monitor.On(MessageBegun{tensors});
  std::vector<std::string> names;
  names.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    names.push_back(tensor.name);
  }
  monitor.On(MessageEnded{names, start_ns, end_ns});
}

// A step that begins at `start`: tensor n appears 10 n ms later, and all are reduced together until 5 ms after that.
void Make(Monitor& monitor, const std::vector<ReducedTensor>& tensors, int64_t start_ms) {
  int64_t at_ms = start_ms;
  for (const auto& tensor : tensors) {
    Arrived(monitor, tensor.name, at_ms * kMs);
    at_ms += 10;
  }
  monitor.Coordinated((at_ms - 10) * kMs, (at_ms - 9) * kMs);
  Reduced(monitor, tensors, (at_ms - 9) * kMs, (at_ms - 5) * kMs);
}

void MakeSteps(Monitor& monitor, const std::vector<ReducedTensor>& tensors, int64_t first, int64_t end) {
  for (int64_t step = first; step < end; ++step) {
    Make(monitor, tensors, 100 * step);
  }
}

// By tensor: when it is ready after the begin of a step, -1 where it is irregular.
std::vector<int64_t> ReadyUs(const Monitor& monitor) {
  std::vector<int64_t> all;
  for (const double ready_s : monitor.Measure().ready_s) {
    all.push_back(ready_s < 0 ? -1 : std::llround(1e6 * ready_s));
  }
  return all;
}

using Times = std::vector<int64_t>;

}  // namespace

TEST_CASE("tensors and messages are numbered in the order in which messages begin, whichever ends first") {
  Monitor one, other;
  for (auto* monitor : {&one, &other}) {
    monitor->On(MessageBegun{{{"a", 4, 0}, {"b", 8, 0}}});
    monitor->On(MessageBegun{{{"c", 16, 0}}});
  }
  one.On(MessageEnded{{"a", "b"}, 0, 3});
  one.On(MessageEnded{{"c"}, 0, 5});
  other.On(MessageEnded{{"c"}, 0, 7});
  CHECK(other.messages()[0].duration_ns == 0);  // has not ended
  other.On(MessageEnded{{"a", "b"}, 0, 9});
  for (const auto* name : {"a", "b", "c"}) {
    CHECK(one.NumberOf(name) == other.NumberOf(name));
  }
  for (const auto* monitor : {&one, &other}) {
    CHECK(monitor->messages()[0].bytes == 12);
    CHECK(monitor->messages()[1].bytes == 16);
  }
  CHECK(one.messages()[1].duration_ns == 5);
  CHECK(other.messages()[0].duration_ns == 9);
}

TEST_CASE("tensors are numbered in the order in which they were first reduced") {
  Monitor monitor;
  Arrived(monitor, "b", 1);  // not reduced yet: unknown
  CHECK(monitor.NumberOf("b") == -1);
  Reduced(monitor, {{"b", 4, 0}, {"a", 8, 1}}, 0, 1);
  Reduced(monitor, {{"c", 4, 0}, {"a", 16, 1}}, 1, 2);
  CHECK(monitor.NumberOf("b") == 0);
  CHECK(monitor.NumberOf("a") == 1);
  CHECK(monitor.NumberOf("c") == 2);
  CHECK(monitor.tensors()[1].bytes == 16);
  CHECK(monitor.messages().size() == 2);
  CHECK(monitor.messages()[1].bytes == 20);
}

TEST_CASE("medians over the complete steps; a small gradient that comes last is one, too") {
  Monitor monitor;
  const std::vector<ReducedTensor> tensors = {{"x", 400, 0}, {"y", 400, 0}, {"z", 4, 0}};
  Reduced(monitor, tensors, 0, 1);
  MakeSteps(monitor, tensors, 0, 8);
  const auto measured = monitor.Measure();
  CHECK(monitor.steps() == 8);
  CHECK(measured.steps == 7);  // the last one may not be over
  CHECK(ReadyUs(monitor) == Times{0, 10'000, 20'000});
  CHECK(measured.step_s == doctest::Approx(0.100));
  CHECK(measured.exposed_s == doctest::Approx(0.005));
  CHECK(measured.coordination_s == doctest::Approx(0.001));
}

TEST_CASE("a tensor that is missing in some steps is irregular") {
  Monitor monitor;
  const std::vector<ReducedTensor> all = {{"x", 4, 0}, {"y", 4, 0}}, some = {{"x", 4, 0}};
  Reduced(monitor, all, 0, 1);
  for (int64_t step = 0; step < 20; ++step) {
    Make(monitor, step % 3 == 0 ? some : all, 100 * step);
  }
  CHECK(ReadyUs(monitor) == Times{0, -1});
}

TEST_CASE("values that are averaged when the gradients are there are no gradients") {
  Monitor monitor;
  const std::vector<ReducedTensor> gradients = {{"x", 400, 0}, {"y", 4, 0}};
  const std::vector<ReducedTensor> loss = {{"loss", 4, 0}}, accuracy = {{"accuracy", 8, 0}};
  Reduced(monitor, {gradients[0], gradients[1], loss[0], accuracy[0]}, 0, 1);
  for (int64_t step = 0; step < 12; ++step) {
    const int64_t start_ms = 100 * step;
    Make(monitor, gradients, start_ms);  // the last gradient appears at 10 and has been reduced at 15
    Arrived(monitor, "loss", (start_ms + 30) * kMs);
    Arrived(monitor, "accuracy", (start_ms + 31) * kMs);
    Reduced(monitor, loss, (start_ms + 32) * kMs, (start_ms + 40) * kMs);
    Reduced(monitor, accuracy, (start_ms + 40) * kMs, (start_ms + 45) * kMs);
  }
  CHECK(ReadyUs(monitor) == Times{0, 10'000, -1, -1});
  CHECK(monitor.Measure().exposed_s == doctest::Approx(0.005));
}

TEST_CASE("nothing is known before a step is over, nor after a restart") {
  Monitor monitor;
  const std::vector<ReducedTensor> tensors = {{"x", 4, 0}};
  Reduced(monitor, tensors, 0, 1);
  Make(monitor, tensors, 0);
  CHECK(monitor.Measure().steps == 0);
  CHECK(monitor.Measure().step_s < 0);
  Make(monitor, tensors, 100);
  CHECK(monitor.Measure().steps == 1);
  monitor.Restart(RoundEnded{});
  CHECK(monitor.Measure().steps == 0);
  CHECK(monitor.messages().empty());
  CHECK(monitor.NumberOf("x") == 0);
  // The running step goes on and is not measured.
  Reduced(monitor, tensors, 0, 500 * kMs);
  Make(monitor, tensors, 600);
  CHECK(monitor.Measure().steps == 0);
  Make(monitor, tensors, 700);
  CHECK(monitor.Measure().exposed_s == doctest::Approx(0.005));
}

TEST_CASE("a restart in the middle of a step leaves steps where they begin") {
  Monitor monitor;
  const std::vector<ReducedTensor> tensors = {{"x", 4, 0}, {"y", 4, 0}};
  Reduced(monitor, tensors, 0, 1);
  Make(monitor, tensors, 0);
  Arrived(monitor, "x", 100 * kMs);
  Reduced(monitor, {tensors[0]}, 101 * kMs, 102 * kMs);
  monitor.Restart(RoundEnded{});
  CHECK(monitor.ReducedInRunningStep() == std::vector<bool>{true, false});
  CHECK(monitor.CameBeforeRunningStep() == std::vector<bool>{false, true});
  Arrived(monitor, "y", 110 * kMs);
  Reduced(monitor, {tensors[1]}, 111 * kMs, 112 * kMs);
  CHECK(monitor.ReducedInRunningStep() == std::vector<bool>{true, true});
  MakeSteps(monitor, tensors, 2, 5);
  CHECK(monitor.Measure().steps == 2);
  CHECK(ReadyUs(monitor) == Times{0, 10'000});
}

TEST_CASE("steps watched from their middle on are brought into line where a program has waited for everything") {
  Monitor monitor;
  const std::vector<ReducedTensor> tensors = {{"x", 4, 0}, {"y", 4, 0}, {"z", 4, 0}};
  Reduced(monitor, tensors, 0, 1);
  Arrived(monitor, "z", 20 * kMs);  // x and y came before anybody watched
  Reduced(monitor, tensors, 21 * kMs, 25 * kMs);
  MakeSteps(monitor, tensors, 1, 6);
  CHECK(monitor.Measure().steps > 2);
  CHECK(ReadyUs(monitor) == Times{0, 10'000, 20'000});
}

TEST_CASE("memory is bounded") {
  Monitor monitor;
  for (size_t n = 0; n < Monitor::kMostTensors + 10; ++n) {
    Reduced(monitor, {{"noname." + std::to_string(n), 4, 0}}, 0, 1);
  }
  CHECK(monitor.tensors().size() == Monitor::kMostTensors);
  CHECK(monitor.messages().size() == Monitor::kMessages);
}
