#include <limits>
#include <stdexcept>
#include <vector>

#include "core/fusion/merge_plan.h"
#include "doctest/doctest.h"

using paceline::core::DecodePlan;
using paceline::core::Encode;
using paceline::core::MergePlan;

namespace {

MergePlan Example() {
  MergePlan plan;
  plan.version = 3;
  plan.active = true;
  plan.patience_s = 0.25;
  plan.expected[1] = 0.5;
  plan.expected[2] = 0;
  plan.group_of = {1, -1, 0, 1};
  return plan;
}

}  // namespace

TEST_CASE("a plan comes back as it went") {
  const auto plan = DecodePlan(Encode(Example()));
  CHECK(plan.version == 3);
  CHECK(plan.active);
  CHECK(plan.patience_s == 0.25);
  CHECK(plan.expected[0] == -1);
  CHECK(plan.expected[1] == 0.5);
  CHECK(plan.expected[2] == 0);
  CHECK(plan.group_of == std::vector<int32_t>{1, -1, 0, 1});
  CHECK(plan.groups() == 2);
  CHECK(DecodePlan(Encode(MergePlan())).groups() == 0);
}

TEST_CASE("the maximum of a plan and zeros is the plan") {
  for (const double value : Encode(Example())) {
    CHECK(value >= 0);
  }
}

TEST_CASE("what is no plan is refused") {
  auto values = Encode(Example());
  CHECK_THROWS_AS(DecodePlan({}), std::invalid_argument);
  auto longer = values;
  longer.push_back(0);
  CHECK_THROWS_AS(DecodePlan(longer), std::invalid_argument);
  auto negative = values;
  negative.back() = -1;
  CHECK_THROWS_AS(DecodePlan(negative), std::invalid_argument);
  auto infinite = values;
  infinite[2] = std::numeric_limits<double>::infinity();
  CHECK_THROWS_AS(DecodePlan(infinite), std::invalid_argument);
  auto gap = Example();
  gap.group_of = {0, 2};
  CHECK_THROWS_WITH_AS(DecodePlan(Encode(gap)), "not a plan: group 1 has no members", std::invalid_argument);
}
