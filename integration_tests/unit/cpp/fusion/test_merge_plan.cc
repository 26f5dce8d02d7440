#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/fusion/merge_plan.h"
#include "doctest/doctest.h"

using paceline::core::DecodePlan;

namespace {

// Version 3, active, patient for 0.25 s; tensor 1 is in no group, tensor 2 in three parts.
const std::vector<double> kExample = {3, 1, 0.25, 4, 0, 1.5, 1, 0, 0, 0, 0, 0, 2, 0, 1, 2, 1, 0, 3, 1};
constexpr size_t kLastGroup = 15;

}  // namespace

TEST_CASE("a plan is read from the values that ranks combine") {
  const auto plan = DecodePlan(kExample);
  CHECK(plan.version == 3);
  CHECK(plan.active);
  CHECK(plan.patience_s == 0.25);
  CHECK(plan.expected[0] == -1);
  CHECK(plan.expected[1] == 0.5);
  CHECK(plan.expected[2] == 0);
  CHECK(plan.group_of == std::vector<int32_t>{1, -1, 0, 1});
  CHECK(plan.parts_of == std::vector<int32_t>{1, 1, 3, 1});
  CHECK(plan.groups() == 2);
  CHECK(DecodePlan({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}).groups() == 0);
}

TEST_CASE("what is no plan is refused") {
  CHECK_THROWS_AS(DecodePlan({}), std::invalid_argument);
  auto longer = kExample;
  longer.push_back(0);
  CHECK_THROWS_AS(DecodePlan(longer), std::invalid_argument);
  auto negative = kExample;
  negative.back() = -1;
  CHECK_THROWS_AS(DecodePlan(negative), std::invalid_argument);
  auto infinite = kExample;
  infinite[2] = std::numeric_limits<double>::infinity();
  CHECK_THROWS_AS(DecodePlan(infinite), std::invalid_argument);
  auto gap = kExample;
  gap[kLastGroup] = 4;
  CHECK_THROWS_WITH_AS(DecodePlan(gap), "not a plan: group 2 has no members", std::invalid_argument);
  for (const size_t tensor : {0, 1, 3}) {
    auto crowd = kExample;
    crowd[kLastGroup + 1 + tensor] = 2;
    const auto text = "not a plan: tensor " + std::to_string(tensor) + " is in parts, and not alone in a group";
    CHECK_THROWS_WITH_AS(DecodePlan(crowd), text.c_str(), std::invalid_argument);
  }
}
