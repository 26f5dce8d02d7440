#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/fusion/planner.h"
#include "core/fusion/prediction.h"
#include "fusion/planner_cases.h"

using namespace paceline::core;  // NOLINT(google-build-using-namespace): the words of the planner

TEST_CASE("the optimal plan ends when the best of all partitions does") {
  std::mt19937 random(11);
  int beaten = 0;
  for (int round = 0; round < 10000; ++round) {
    const int types = round % 3 == 0 ? cases::Int(random, 2, 3) : 1;
    const auto gradients = cases::RandomGradients(random, cases::Int(random, 1, 10), types);
    const auto cost = round % 2 == 0 ? cases::RandomLine(random) : cases::RandomCurve(random);
    const double limit_bytes = round % 5 == 0 ? cases::Uniform(random, 0.5, 10) : 0;
    const auto groups = Plan(Policy::kOptimal, gradients, cost, {0, limit_bytes});
    ValidateGroups(groups, gradients.size());
    const double end_s = cases::EndOf(gradients, groups, cost);
    const auto end_of = [&](const Groups& some) { return cases::EndOf(gradients, some, cost); };
    REQUIRE(end_s == doctest::Approx(cases::BruteForce(gradients, limit_bytes, end_of)).epsilon(1e-9));
    const auto greedy = Plan(Policy::kMgwfbp, gradients, cost, {0, limit_bytes});
    beaten += cases::EndOf(gradients, greedy, cost) > end_s + 1e-9 ? 1 : 0;
  }
  // The cases must be hard enough to tell a planner from the optimum.
  CHECK(beaten > 2000);
}

TEST_CASE("no other policy ends before the optimal plan, on larger models") {
  std::mt19937 random(12);
  for (int round = 0; round < 300; ++round) {
    const int count = cases::Int(random, 11, 200);
    const auto gradients = cases::RandomGradients(random, count, cases::Int(random, 1, 4));
    const auto cost = round % 2 == 0 ? cases::RandomLine(random) : cases::RandomCurve(random);
    const double limit_bytes = round % 3 == 0 ? cases::Uniform(random, 1, 100) : 0;
    const double best_s = cases::EndOf(gradients, Plan(Policy::kOptimal, gradients, cost, {0, limit_bytes}), cost);
    for (const auto policy : {Policy::kNone, Policy::kSingle, Policy::kThreshold, Policy::kMgwfbp}) {
      const PlanLimits limits{cases::Uniform(random, 1, 200), limit_bytes};
      REQUIRE(best_s <= cases::EndOf(gradients, Plan(policy, gradients, cost, limits), cost) + 1e-9);
    }
  }
}

TEST_CASE("Horovod's own cycles do not beat the optimal plan either") {
  std::mt19937 random(13);
  for (int round = 0; round < 300; ++round) {
    const auto gradients = cases::RandomGradients(random, cases::Int(random, 1, 60), 1);
    const auto cost = round % 2 == 0 ? cases::RandomLine(random) : cases::RandomCurve(random);
    const double coordination_s = cases::Uniform(random, 0, 1);
    const auto stock =
        PredictStock(gradients, cost, {coordination_s, cases::Uniform(random, 0, 1), cases::Uniform(random, 0, 30)});
    const double best_s = cases::EndOf(gradients, Plan(Policy::kOptimal, gradients, cost), cost);
    REQUIRE(best_s <= stock.prediction.finish_s + 1e-9);
  }
}

TEST_CASE("of plans that end at the same time the one with fewer groups is taken") {
  // Without start-up time nothing is lost or won by cutting what is ready at once.
  std::vector<Gradient> gradients(17, Gradient{0.1, 1, 0});
  CHECK(Plan(Policy::kOptimal, gradients, CostModel::Linear(0, 0.3)).size() == 1);
  CHECK(Plan(Policy::kOptimal, gradients, CostModel::Linear(0, 0)).size() == 1);
  // On a clock that began long ago as well.
  for (auto& gradient : gradients) {
    gradient.ready_s += 1e9;
  }
  CHECK(Plan(Policy::kOptimal, gradients, CostModel::Linear(0, 0.3)).size() == 1);
}

TEST_CASE("times far from 0 do not blur the plan") {
  auto gradients = cases::FromBackward({1, 3, 4}, {3, 1, 1});
  for (auto& gradient : gradients) {
    gradient.ready_s = gradient.ready_s * 1e-3 + 1e9;
  }
  CHECK(Plan(Policy::kOptimal, gradients, CostModel::Linear(4e-3, 1e-3)) == Groups{{0}, {1, 2}});
}
