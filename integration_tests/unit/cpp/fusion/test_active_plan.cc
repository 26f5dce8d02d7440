#include <string>
#include <utility>
#include <vector>

#include "core/fusion/active_plan.h"
#include "core/fusion/message_packing.h"
#include "doctest/doctest.h"

using namespace paceline::core;

namespace {

const std::vector<ReducedTensor> kTensors = {{"a", 4, 0}, {"b", 100, 0}, {"c", 17, 0}, {"d", 8, 0}};

MergePlan Plan(std::vector<int32_t> group_of) {
  MergePlan plan;
  plan.version = 1;
  plan.active = true;
  plan.patience_s = 0.25;
  plan.group_of = std::move(group_of);
  return plan;
}

}  // namespace

TEST_CASE("a plan says which tensors go together, and for how long one waits for the others") {
  const ActivePlan plan(Plan({1, -1, 0, 1}), kTensors);
  CHECK(plan.GroupOf(0) == 1);
  CHECK(plan.GroupOf(1) == -1);
  CHECK(plan.Group(1) == nullptr);
  REQUIRE(plan.Group(0) != nullptr);
  CHECK(plan.Group(0) == plan.Group(3));
  CHECK(plan.Group(0)->names == std::vector<std::string>{"a", "d"});
  CHECK(plan.Group(2)->names == std::vector<std::string>{"c"});
  CHECK(plan.Group(2)->patience_ns == 250'000'000);
  CHECK(plan.patience_ns() == 250'000'000);
}

TEST_CASE("tensors that are not known, or came after the plan, go alone") {
  const ActivePlan plan(Plan({0, 0}), kTensors);
  CHECK(plan.GroupOf(-1) == -1);
  CHECK(plan.Group(-1) == nullptr);
  CHECK(plan.GroupOf(2) == -1);
  CHECK(plan.Group(3) == nullptr);
}

TEST_CASE("a message must hold the largest group, each tensor from a multiple of 16 bytes on") {
  CHECK(PaddedBytes(0) == 0);
  CHECK(PaddedBytes(1) == 16);
  CHECK(PaddedBytes(16) == 16);
  CHECK(ActivePlan(Plan({0, 1, 0, 0}), kTensors).largest_group_bytes() == 112);  // b alone
  CHECK(ActivePlan(Plan({0, 1, 1, 0}), kTensors).largest_group_bytes() == 144);  // b and c
  CHECK(ActivePlan(Plan({-1, -1, -1, 0}), kTensors).largest_group_bytes() == 16);
}

TEST_CASE("a plan that is not active is none") {
  auto inactive = Plan({0, 0, 0, 0});
  inactive.active = false;
  for (const auto& plan : {ActivePlan(inactive, kTensors), ActivePlan()}) {
    CHECK(plan.group_of().empty());
    CHECK(plan.Group(0) == nullptr);
    CHECK(plan.largest_group_bytes() == 0);
  }
}
