#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>
#include <vector>

#include "core/fusion/collective_cost.h"
#include "core/fusion/cost_model.h"
#include "fusion/planner_cases.h"

using namespace paceline::core;  // NOLINT(google-build-using-namespace): the words of the planner

TEST_CASE("a line costs its start-up and its bytes") {
  const auto cost = CostModel::Linear(2, 0.5);
  CHECK(cost(0) == 2);
  CHECK(cost(10) == 7);
  CHECK(cost.linear().a_s == 2);
  CHECK(cost.linear().b_s_per_byte == 0.5);
  CHECK(cost.points().empty());
}

TEST_CASE("a measured cost goes through its points, level before the first and on beyond the last") {
  const auto cost = CostModel::Measured({{40, 9}, {10, 3}, {20, 5}});
  CHECK(cost.points().front().bytes == 10);
  CHECK(cost(0) == 3);
  CHECK(cost(10) == 3);
  CHECK(cost(15) == 4);
  CHECK(cost(20) == 5);
  CHECK(cost(30) == 7);
  CHECK(cost(40) == 9);
  CHECK(cost(60) == 13);  // with the slope from 20 to 40 bytes
  CHECK(cost.linear().a_s == doctest::Approx(1));
  CHECK(cost.linear().b_s_per_byte == doctest::Approx(0.2));
}

TEST_CASE("two neighbours at the end do not decide how a measured cost goes on") {
  // From 98 to 100 bytes nothing, or much, was added; from 50 to 100 bytes 5 seconds.
  CHECK(CostModel::Measured({{50, 5}, {98, 10}, {100, 10}})(200) == doctest::Approx(20));
  CHECK(CostModel::Measured({{50, 5}, {98, 8}, {100, 10}})(200) == doctest::Approx(20));
  // Flat from the half on: the line through all.
  const auto flat = CostModel::Measured({{10, 1}, {20, 2}, {50, 5}, {100, 5}});
  CHECK(flat(200) > 5);
}

TEST_CASE("one measured point") {
  const auto cost = CostModel::Measured({{100, 2}});
  CHECK(cost(1) == 2);
  CHECK(cost(100) == 2);
  CHECK(cost(300) == doctest::Approx(6));
  CHECK(cost.linear().b_s_per_byte == doctest::Approx(0.02));
  CHECK(CostModel::Measured({{0, 2}})(50) == 2);
  CHECK(CostModel::Measured({{10, 0}, {20, 0}})(50) == 0);
}

TEST_CASE("no measured cost falls as messages grow") {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    const auto cost = cases::RandomCurve(random);
    double before = 0;
    for (double bytes = 0; bytes < 60; bytes += 0.37) {
      REQUIRE(cost(bytes) >= before);
      before = cost(bytes);
    }
  }
}

TEST_CASE("a constant added to every message") {
  const auto line = CostModel::Linear(1, 2).Plus(3);
  CHECK(line.linear().a_s == 4);
  CHECK(line(5) == 14);
  const auto measured = CostModel::Measured({{10, 3}, {20, 5}, {40, 9}});
  for (const double bytes : {0.0, 10.0, 17.0, 40.0, 500.0}) {
    CHECK(measured.Plus(7)(bytes) == doctest::Approx(measured(bytes) + 7));
  }
  CHECK(measured.Plus(7).linear().a_s == doctest::Approx(8));
  // What one point says of larger messages does not change either.
  CHECK(CostModel::Measured({{100, 2}}).Plus(1)(300) == doctest::Approx(7));
}

TEST_CASE("costs that are none are refused") {
  const double infinite = std::numeric_limits<double>::infinity();
  const double none = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH_AS(CostModel::Linear(-1, 0), "the start-up time a_s is -1; it must be finite and not negative",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(CostModel::Linear(0, none),
                       "the time per byte b_s_per_byte is nan; it must be finite and not negative",
                       std::invalid_argument);
  CHECK_THROWS_AS(CostModel::Linear(1, 1).Plus(-1), std::invalid_argument);
  CHECK_THROWS_WITH_AS(CostModel::Measured({{1, 1}, {2, infinite}}),
                       "the time of measured point 1 is inf; it must be finite and not negative",
                       std::invalid_argument);
  CHECK_THROWS_AS(CostModel::Measured({{-1, 1}}), std::invalid_argument);
  CHECK_THROWS_WITH_AS(CostModel::Measured({}),
                       "a measured cost needs at least one point of (bytes, seconds); there is none",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(CostModel::Measured({{8, 1}, {4, 1}, {8, 2}}),
                       "two measured points have 8 bytes; give one of each size, or samples to a fit",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(CostModel::Measured({{4, 2}, {8, 1}}),
                       "the measured cost falls from 2 s at 4 bytes to 1 s at 8 bytes; give samples to a fit, which "
                       "evens them out",
                       std::invalid_argument);
}

TEST_CASE("every row of the paper's table of all-reduces, by hand for 8 workers") {
  const double alpha = 3, beta = 5, gamma = 7;
  struct Row {
    const char* name;
    double a, b;
  };
  for (const auto& row :
       {Row{"binary-tree", 18, 51}, Row{"recursive-doubling", 9, 36}, Row{"recursive-halving-doubling", 18, 14.875},
        Row{"double-binary-trees", 18, 12}, Row{"ring", 42, 14.875}}) {
    CAPTURE(row.name);
    const auto line = AllreduceCost(AllreduceAlgorithmOf(row.name), 8, alpha, beta, gamma);
    CHECK(line.a_s == doctest::Approx(row.a));
    CHECK(line.b_s_per_byte == doctest::Approx(row.b));
    const auto alone = AllreduceCost(AllreduceAlgorithmOf(row.name), 1, alpha, beta, gamma);
    CHECK(alone.a_s == 0);
    CHECK(alone.b_s_per_byte == 0);
  }
}

TEST_CASE("all-reduces that do not exist") {
  CHECK_THROWS_WITH_AS(AllreduceAlgorithmOf("star"),
                       "no all-reduce is called 'star'; known are: binary-tree, recursive-doubling, "
                       "recursive-halving-doubling, double-binary-trees, ring",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(AllreduceCost(AllreduceAlgorithm::kRing, 0, 1, 1, 1),
                       "an all-reduce needs at least one worker, not 0", std::invalid_argument);
  CHECK_THROWS_WITH_AS(AllreduceCost(AllreduceAlgorithm::kRing, 2, 1, -1, 1),
                       "beta is -1; it must be finite and not negative", std::invalid_argument);
}

TEST_CASE("start-ups and bytes may take a multiple of their times") {
  for (const auto& model :
       {CostModel::Linear(2, 3), CostModel::Measured({{1, 2}, {4, 5}, {6, 9}}), CostModel::Measured({{4, 5}})}) {
    const auto more = model.Times(2, 1.5);
    for (const double bytes : {0.0, 1.0, 3.0, 5.0, 6.0, 60.0}) {
      CHECK(more(bytes) == doctest::Approx(2 * model(0) + 1.5 * (model(bytes) - model(0))));
    }
    CHECK(more.linear().a_s == doctest::Approx(2 * model.linear().a_s));
    CHECK(more.linear().b_s_per_byte == doctest::Approx(1.5 * model.linear().b_s_per_byte));
    CHECK_THROWS_AS(model.Times(-1, 1), std::invalid_argument);
    CHECK_THROWS_AS(model.Times(1, -1), std::invalid_argument);
  }
}
