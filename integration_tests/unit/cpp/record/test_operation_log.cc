#include <string>
#include <vector>

#include "core/record/operation_log.h"
#include "doctest/doctest.h"

using paceline::core::CollectiveKind;
using paceline::core::OperationLog;

namespace {

constexpr int32_t kFloat32 = 7;

void Submitted(OperationLog& log, const std::string& name, int64_t now_ns = 1, int32_t process_set = 0) {
  log.Submitted({name, CollectiveKind::kAllreduce, kFloat32, process_set, {2, 3}}, now_ns);
}

}  // namespace

TEST_CASE("a log that was not started keeps nothing") {
  OperationLog log;
  Submitted(log, "a");
  log.Started(0, "a", 2);
  log.Completed(0, "a", 3);
  CHECK(log.Recent().empty());
}

TEST_CASE("the last submission of a name is the one that starts and completes") {
  OperationLog log;
  log.Start();
  Submitted(log, "a", 10);
  log.Started(0, "a", 11);
  log.Completed(0, "a", 12);
  Submitted(log, "b", 13);
  Submitted(log, "a", 14);
  log.Started(0, "a", 15);
  log.Started(0, "stranger", 16);
  log.Completed(1, "a", 17);  // of another process set
  const auto recent = log.Recent();
  REQUIRE(recent.size() == 3);
  CHECK(recent[0].completed_ns == 12);
  CHECK((recent[1].submission.name == "b" && recent[1].started_ns == 0));
  CHECK((recent[2].started_ns == 15 && recent[2].completed_ns == 0));
  CHECK((recent[2].step == 1 && recent[2].number == 2));
  CHECK(recent[2].submission.shape == std::vector<int64_t>{2, 3});
}

TEST_CASE("ranks that submit a step in different orders keep the same operations") {
  OperationLog one, other;
  one.Start();
  other.Start();
  for (int step = 0; step < 25; ++step) {
    for (const auto* name : {"a", "b", "c"}) {
      Submitted(one, name);
    }
    for (const auto* name : {"c", "a", "b"}) {
      Submitted(other, name);
    }
  }
  REQUIRE(one.Recent().size() == 30);
  REQUIRE(other.Recent().size() == 30);
  CHECK(one.Recent().front().step == 15);
  CHECK(one.Recent().front().number == 16);
  CHECK(other.Recent().front().step == 15);
  CHECK(other.Recent().back().number == 25);
}

TEST_CASE("many operations leave few steps, at least two, and process sets count by themselves") {
  OperationLog log;
  log.Start();
  for (int step = 0; step < 4; ++step) {
    for (int n = 0; n < 3000; ++n) {
      Submitted(log, std::to_string(n));
    }
  }
  CHECK(log.Recent().size() == 6000);
  log.Clear();
  CHECK(log.Recent().empty());
  Submitted(log, "a", 1, 0);
  Submitted(log, "a", 2, 1);
  const auto recent = log.Recent();
  CHECK((recent[0].number == 1 && recent[1].number == 1 && recent[1].step == 0));
}
