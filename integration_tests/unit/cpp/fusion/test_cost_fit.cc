#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/fusion/cost_fit.h"
#include "core/fusion/cost_model.h"
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
