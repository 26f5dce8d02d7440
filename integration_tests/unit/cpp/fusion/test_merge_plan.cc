#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/fusion/active_plan.h"
#include "core/fusion/merge_plan.h"
#include "core/fusion/message_packing.h"
#include "doctest/doctest.h"

using namespace paceline::core;
using Messages = std::vector<std::vector<size_t>>;

namespace {

// Version 3, active, patient for 0.25 s; tensor 1 is in no group, tensor 2 in three parts.
const std::vector<double> kExample = {3, 1, 0.25, 4, 0, 1.5, 1, 0, 0, 0, 0, 0, 2, 0, 1, 2, 1, 0, 3, 1};
constexpr size_t kLastGroup = 15;

const std::vector<ReducedTensor> kTensors = {{"a", 4, 0}, {"b", 100, 0}, {"c", 17, 0}, {"d", 8, 0}};

MergePlan Plan(std::vector<int32_t> group_of) {
  MergePlan plan;
  plan.version = 1;
  plan.active = true;
  plan.timeout_s = 0.25;
  plan.group_of = std::move(group_of);
  return plan;
}

}  // namespace

TEST_CASE("a plan is read from the values that ranks combine") {
  const auto plan = DecodePlan(kExample);
  CHECK(plan.version == 3);
  CHECK(plan.active);
  CHECK(plan.timeout_s == 0.25);
  CHECK(plan.expected[0] == -1);
  CHECK(plan.expected[1] == 0.5);
  CHECK(plan.expected[2] == 0);
  CHECK(plan.group_of == std::vector<int32_t>{1, -1, 0, 1});
  CHECK(plan.parts_of == std::vector<int32_t>{1, 1, 3, 1});
  CHECK(plan.groups() == 2);
  CHECK(DecodePlan({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}).groups() == 0);
}

TEST_CASE("damaged plans are read or refused, whatever the values") {
  std::mt19937 dice(7);
  const std::vector<double> others = {
      0, 1, 0.5, -1, 3, 1e9, 4294967296.0, 9.3e18, 1e300, std::nan(""), std::numeric_limits<double>::infinity()};
  int read = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    auto damaged = kExample;
    for (auto changes = 1 + dice() % 3; changes > 0; --changes) {
      damaged[dice() % damaged.size()] = others[dice() % others.size()];
    }
    damaged.resize(damaged.size() - (dice() % 8 == 0 ? dice() % damaged.size() : 0));
    try {
      const auto plan = DecodePlan(damaged);
      CHECK(ActivePlan(plan, kTensors).timeout_ns() >= 0);
      CHECK(plan.group_of.size() == plan.parts_of.size());
      CHECK(plan.groups() <= static_cast<int32_t>(plan.group_of.size()));
      ++read;
    } catch (const std::invalid_argument&) {
    }
  }
  CHECK(read > 1000);
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
  auto long_wait = kExample;
  long_wait[2] = 1e10;  // more nanoseconds than an int64_t has
  CHECK_THROWS_AS(DecodePlan(long_wait), std::invalid_argument);
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

TEST_CASE("a plan says which tensors go together, and for how long one waits for the others") {
  const ActivePlan plan(Plan({1, -1, 0, 1}), kTensors);
  CHECK(plan.GroupOf(0) == 1);
  CHECK(plan.GroupOf(1) == -1);
  CHECK(plan.Group(1) == nullptr);
  REQUIRE(plan.Group(0) != nullptr);
  CHECK(plan.Group(0) == plan.Group(3));
  CHECK(plan.Group(0)->names == std::vector<std::string>{"a", "d"});
  CHECK(plan.Group(2)->names == std::vector<std::string>{"c"});
  CHECK(plan.Group(2)->timeout_ns == 250'000'000);
  CHECK(plan.timeout_ns() == 250'000'000);
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

TEST_CASE("tensors fill messages up to the limit of bytes, in order") {
  const std::vector<PackedTensor> tensors = {{60, 1, 0}, {30, 1, 0}, {20, 1, 0}, {10, 1, 0}, {80, 1, 0}};
  CHECK(PackMessages(tensors, {100, 1000}) == Messages{{0, 1, 3}, {2, 4}});
  CHECK(PackMessages(tensors, {0, 1000}) == Messages{{0}, {1}, {2}, {3}, {4}});
  CHECK(PackMessages({}, {100, 1000}).empty());
}

TEST_CASE("a tensor that is larger than a limit goes alone") {
  const std::vector<PackedTensor> tensors = {{101, 1, 0}, {1, 1, 0}, {1, 11, 0}, {1, 1, 0}};
  CHECK(PackMessages(tensors, {100, 10}) == Messages{{0}, {1, 3}, {2}});
}

TEST_CASE("a tensor goes alone from the size on that is set for it") {
  const std::vector<PackedTensor> tensors = {{10, 1, 0}, {50, 1, 0}, {49, 1, 0}, {51, 1, 0}, {1, 1, 0}};
  CHECK(PackMessages(tensors, {1000, 1000, 50}) == Messages{{0, 2, 4}, {1}, {3}});
  CHECK(PackMessages(tensors, {1000, 1000}) == Messages{{0, 1, 2, 3, 4}});
}

TEST_CASE("tensors of several kinds do not share a message") {
  const std::vector<PackedTensor> tensors = {{1, 1, 0}, {1, 1, 1}, {1, 1, 0}, {1, 1, 2}, {1, 1, 1}};
  CHECK(PackMessages(tensors, {100, 100}) == Messages{{0, 2}, {1, 4}, {3}});
}

TEST_CASE("a message has fewer elements than an int counts, whatever its bytes may be") {
  // A large model in float16 as one group: 8 billion elements.
  const int64_t elements = 400'000'000;
  const std::vector<PackedTensor> tensors(20, {2 * elements, elements, 0});
  const MessageLimits limits{int64_t{1} << 40};
  size_t packed = 0;
  for (const auto& message : PackMessages(tensors, limits)) {
    CHECK(static_cast<int64_t>(message.size()) * elements <= kMostElements);
    packed += message.size();
  }
  CHECK(packed == tensors.size());
  CHECK(PackMessages(tensors, limits).size() == 4);
}
