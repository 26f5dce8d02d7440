#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "collectives/cases.h"
#include "core/collectives/execution.h"
#include "doctest/doctest.h"

using namespace collectives;
using State = CollectiveExecution::State;

TEST_CASE("an operation is ready when those that it comes after are done, and started when it is taken") {
  // Rank 1 of 3: receives a block, adds it, sends it on; there is scratch for two of four.
  auto schedule = std::make_shared<const CollectiveSchedule>(paceline::core::LinearReduce({1, 3}, {4, 1, 8, 2}, 2));
  CollectiveExecution execution(schedule);
  const auto& operations = schedule->operations;  // receive, combine, send, four times
  REQUIRE(operations.size() == 12);
  CHECK(execution.state(0) == State::kReady);
  CHECK(execution.state(1) == State::kWaiting);
  CHECK(execution.Next() == 0);
  CHECK(execution.Next() == 3);  // posted ahead
  CHECK(execution.Next() < 0);   // the third has no room
  CHECK(execution.Started() == std::vector<int32_t>{0, 3});
  execution.Done(3);
  CHECK(execution.Next() == 4);
  execution.Done(0);
  CHECK(execution.state(6) == State::kWaiting);  // what was received has not been combined
  CHECK(execution.Next() == 1);
  CHECK(execution.Next() < 0);
  execution.Done(1);
  CHECK(execution.state(1) == State::kDone);
  CHECK(execution.Next() == 2);  // sent on
  CHECK(execution.Next() < 0);   // from its block
  CHECK(execution.Started() == std::vector<int32_t>{2, 4});
  execution.Done(2);
  CHECK(execution.Next() == 6);  // that is free now
  CHECK(execution.Next() < 0);
  CHECK_FALSE(execution.finished());
  CHECK(execution.Started() == std::vector<int32_t>{4, 6});
}

TEST_CASE("receives are started before sends, so that peers can send at once") {
  // Both of two ranks send a shard of four blocks; the receives follow in the list.
  using Kind = paceline::core::CollectiveSchedule::Operation::Kind;
  auto schedule = std::make_shared<const CollectiveSchedule>(paceline::core::RingAllreduce({0, 2}, {8, 1, 8, 8}));
  CollectiveExecution execution(schedule);
  std::vector<Kind> started;
  for (int32_t number = 0; (number = execution.Next()) >= 0;) {
    started.push_back(schedule->operations[static_cast<size_t>(number)].kind);
  }
  CHECK(started == std::vector<Kind>{Kind::kReceive, Kind::kReceive, Kind::kReceive, Kind::kReceive, Kind::kSend,
                                     Kind::kSend, Kind::kSend, Kind::kSend});
}

TEST_CASE("an execution of nothing is finished at once") {
  CollectiveExecution execution(std::make_shared<const CollectiveSchedule>());
  CHECK(execution.finished());
  CHECK(execution.Next() < 0);
}

TEST_CASE("several collectives are under way side by side") {
  const auto bring = [](int32_t rank, int64_t element) { return (rank + 1) * (element + 1); };
  const auto add = [](int64_t left, int64_t right) { return left + right; };
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto p = static_cast<int32_t>(1 + random() % 8);
    std::vector<std::unique_ptr<Job<int64_t>>> jobs;
    RandomOrder<int64_t> order(seed);
    for (const auto& algorithm : Allreduces()) {
      const BlockedMessage message{static_cast<int64_t>(random() % 50), static_cast<int64_t>(1 + random() % 9),
                                   static_cast<int32_t>(1 + random() % 4)};
      const auto root = static_cast<int32_t>(random() % static_cast<uint32_t>(p));
      auto schedules = OnAll(p, [&](Place place) { return algorithm.make(place, message, root); });
      jobs.push_back(std::make_unique<Job<int64_t>>(std::move(schedules), message.elements, bring, add));
      order.Add(*jobs.back());
    }
    order.Run();
    for (const auto& job : jobs) {
      for (int32_t rank = 0; rank < p; ++rank) {
        int64_t element = 0;
        for (const int64_t value : job->Result(rank)) {
          CHECK(value == p * (p + 1) / 2 * ++element);
        }
      }
    }
  }
}
