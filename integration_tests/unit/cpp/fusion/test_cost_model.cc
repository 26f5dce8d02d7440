#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/fusion/collective_cost.h"
#include "core/fusion/cost_fit.h"
#include "core/fusion/cost_model.h"
#include "doctest/doctest.h"
#include "fusion/planner_cases.h"

using namespace paceline::core;

namespace {

// `sizes` sizes over four decades, `repeats` samples of each, with 2 % noise; a fifth of all samples takes 2 to 30
// times as long.
std::vector<CostPoint> Noisy(std::mt19937& random, int sizes, int repeats, double a_s, double b_s_per_byte) {
  std::vector<CostPoint> samples;
  for (int n = 0; n < sizes; ++n) {
    const double bytes = 1024 * std::pow(10, 4.0 * n / (sizes - 1));
    for (int repeat = 0; repeat < repeats; ++repeat) {
      samples.push_back({bytes, (a_s + b_s_per_byte * bytes) * cases::Uniform(random, 0.98, 1.02)});
    }
  }
  std::shuffle(samples.begin(), samples.end(), random);
  for (size_t n = 0; n < samples.size() / 5; ++n) {
    samples[n].seconds *= cases::Uniform(random, 2, 30);
  }
  std::shuffle(samples.begin(), samples.end(), random);
  return samples;
}

}  // namespace

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

TEST_CASE("a line is found exactly in clean samples") {
  const auto line = FitLinear({{1000, 1.2e-3 + 1.5e-6}, {200e3, 1.5e-3}, {400e3, 1.8e-3}, {10e6, 16.2e-3}});
  CHECK(line.a_s == doctest::Approx(1.2e-3));
  CHECK(line.b_s_per_byte == doctest::Approx(1.5e-9));
  const auto two = FitLinear({{8, 2}, {4, 1.5}});
  CHECK(two.a_s == doctest::Approx(1));
  CHECK(two.b_s_per_byte == doctest::Approx(0.125));
}

TEST_CASE("a line is found to a few percent where a fifth of the samples is far off") {
  std::mt19937 random(4);
  double worst = 0;
  for (int round = 0; round < 300; ++round) {
    // Networks from 1 to 100 Gbit/s; from 10 KB to 1 MB take as long as the start-up: 1 us to 10 ms.
    const double b_s_per_byte = std::pow(10, cases::Uniform(random, -10, -8));
    const double a_s = b_s_per_byte * std::pow(10, cases::Uniform(random, 4, 6));
    const bool repeated = round % 2 == 0;
    const auto line =
        FitLinear(Noisy(random, repeated ? 12 : cases::Int(random, 30, 90), repeated ? 9 : 1, a_s, b_s_per_byte));
    worst = std::max({worst, std::abs(line.a_s / a_s - 1), std::abs(line.b_s_per_byte / b_s_per_byte - 1)});
  }
  CHECK(worst < 0.03);
}

TEST_CASE("neither start-up nor bandwidth is fitted below zero") {
  const auto steep = FitLinear({{100, 1}, {200, 3}, {300, 5}, {400, 7}});
  CHECK(steep.a_s == 0);
  CHECK(steep.b_s_per_byte > 0);
  const auto falling = FitLinear({{100, 4}, {200, 3}, {300, 2}});
  CHECK(falling.a_s > 0);
  CHECK(falling.b_s_per_byte == 0);
}

TEST_CASE("three sizes with a little noise give a line near all of them") {
  const auto line = FitLinear({{1e3, 1.01e-3}, {1e5, 1.09e-3}, {1e6, 2.02e-3}});
  for (const double bytes : {1e3, 1e5, 1e6}) {
    CHECK(line.a_s + line.b_s_per_byte * bytes == doctest::Approx(1e-3 + 1e-9 * bytes).epsilon(0.03));
  }
}

TEST_CASE("medians by size, made non-decreasing with the number of samples as weight") {
  const auto points = IsotonicMedians({{8, 5}, {2, 1}, {2, 9}, {2, 2}, {4, 6}, {4, 6}, {4, 90}, {16, 7}, {16, 8}});
  REQUIRE(points.size() == 4);
  CHECK(points[0].bytes == 2);
  CHECK(points[0].seconds == 2);
  CHECK(points[1].seconds == doctest::Approx((3 * 6 + 1 * 5) / 4.0));
  CHECK(points[2].seconds == points[1].seconds);
  CHECK(points[3].bytes == 16);
  CHECK(points[3].seconds == 7);  // of two the earlier
}

TEST_CASE("a measured model can be made of any samples") {
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    std::vector<CostPoint> samples;
    for (int n = cases::Int(random, 1, 40); n > 0; --n) {
      samples.push_back({static_cast<double>(cases::Int(random, 0, 12)), cases::Uniform(random, 0, 5)});
    }
    const auto cost = FitMeasured(samples);
    double before = 0;
    for (double bytes = 0; bytes < 30; bytes += 0.5) {
      REQUIRE(cost(bytes) >= before);
      before = cost(bytes);
    }
  }
}

TEST_CASE("a measured model of noisy samples is near the truth between and beyond its sizes") {
  std::mt19937 random(10);
  const auto cost = FitMeasured(Noisy(random, 14, 11, 1e-3, 2e-9));
  for (const double bytes : {500.0, 3e3, 5e4, 7e5, 5e6, 1e7, 4e7}) {
    CHECK(cost(bytes) == doctest::Approx(1e-3 + 2e-9 * bytes).epsilon(0.06));
  }
}

TEST_CASE("samples that say nothing are refused") {
  CHECK_THROWS_WITH_AS(FitLinear({}), "a cost needs at least one sample of (bytes, seconds); there is none",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(FitLinear({{4, 1}, {4, 2}}),
                       "a line needs messages of at least two sizes; all samples have 4 bytes", std::invalid_argument);
  CHECK_THROWS_WITH_AS(FitLinear({{4, 0}, {8, 0}}), "all measured times are zero; no cost can be fitted to them",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(FitMeasured({{4, 1}, {8, std::numeric_limits<double>::quiet_NaN()}}),
                       "sample 1 is (8 bytes, nan s): bytes and seconds must be finite and not negative",
                       std::invalid_argument);
  CHECK_THROWS_AS(FitMeasured({}), std::invalid_argument);
  CHECK_THROWS_AS(FitMeasured({{-4, 1}}), std::invalid_argument);
}
