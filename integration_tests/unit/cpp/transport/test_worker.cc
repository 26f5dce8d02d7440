#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/transport/worker.h"

using paceline::core::Worker;

TEST_CASE("tasks are done in order, in a thread of their own") {
  constexpr int kTasks = 501;
  const auto here = std::this_thread::get_id();
  std::vector<int> done;
  std::atomic<int> count{0};
  bool elsewhere = true;
  Worker worker;
  for (int task = 0; task < kTasks; ++task) {
    worker.Do([&, task] {
      elsewhere = elsewhere && std::this_thread::get_id() != here;
      done.push_back(task);
      ++count;
    });
  }
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
       count < kTasks && std::chrono::steady_clock::now() < until;) {
    std::this_thread::yield();
  }
  REQUIRE(count == kTasks);
  CHECK(elsewhere);
  for (int task = 0; task < kTasks; ++task) {
    CHECK(done[task] == task);
  }
}

TEST_CASE("who ends it waits for the task at hand, and none is begun after that") {
  std::atomic<bool> begun{false};
  std::atomic<bool> go_on{false};
  std::atomic<int> ended{0};
  std::thread other;
  {
    Worker worker;
    worker.Do([&] {
      begun = true;
      while (!go_on) {
        std::this_thread::yield();
      }
      ++ended;
    });
    while (!begun) {
      std::this_thread::yield();
    }
    worker.Do([&] { ended += 100; });
    other = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      go_on = true;
    });
  }
  CHECK(ended == 1);
  other.join();
}

TEST_CASE("one that had nothing to do ends at once") { const Worker worker; }
