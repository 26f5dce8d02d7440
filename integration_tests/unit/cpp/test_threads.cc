// What several threads use at once; `make test-cpp SANITIZE=thread` looks for races here.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/naming/automatic_names.h"
#include "core/record/recorder.h"

namespace {

using namespace paceline::core;

TEST_CASE("threads never draw the same name") {
  constexpr size_t kThreads = 3;
  constexpr size_t kEach = 501;
  AutomaticNames names;
  std::vector<std::vector<std::string>> drawn(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : drawn) {
    threads.emplace_back([&names, &mine] {
      while (mine.size() < kEach) {
        mine.push_back(names.Next("allreduce", 0));
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  std::set<std::string> all;
  for (const auto& mine : drawn) {
    all.insert(mine.begin(), mine.end());
  }
  CHECK(all.size() == kThreads * kEach);
}

// Tensors are handed in by the framework's thread while Horovod's thread executes and a reader looks on.
TEST_CASE("arrivals, collectives and snapshots at the same time") {
  constexpr int64_t kSteps = 301;
  Recorder recorder;
  recorder.Start(kSteps, 0);
  std::thread framework([&recorder] {
    for (int64_t step = 0; step < kSteps; ++step) {
      recorder.Arrived({"a", 4, 7, 0}, 2 * step);
      recorder.Arrived({"b", 12, 7, 0}, 2 * step + 1);
    }
  });
  std::thread horovod([&recorder] {
    for (int64_t i = 0; i < kSteps; ++i) {
      recorder.Coordinated();
      recorder.Performed(CollectiveKind::kAllreduce, {"a", "b"}, 16, i, i + 1);
    }
  });
  for (int i = 0; i < 50; ++i) {
    const auto looked = recorder.TakeSnapshot();
    CHECK_FALSE(looked.words.empty());
  }
  framework.join();
  horovod.join();

  // Two tensors of three words each stand in front of the number of steps.
  const auto words = recorder.TakeSnapshot().words;
  REQUIRE(words.size() > 1 + 2 * 3);
  CHECK(words[0] == 2);
  CHECK(words[1 + 2 * 3] == kSteps);
  CHECK(recorder.counters().messages == kSteps);
  CHECK(recorder.counters().coordination_rounds == kSteps);
  CHECK(recorder.counters().bytes == 16 * kSteps);
}

}  // namespace
