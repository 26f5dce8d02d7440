#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/fusion/armed_planner.h"
#include "core/fusion/planner.h"
#include "core/fusion/prediction.h"
#include "fusion/planner_cases.h"

using namespace paceline::core;  // NOLINT(google-build-using-namespace): the words of the planner

namespace {

ArmedCosts RandomCosts(std::mt19937& random, int64_t together) {
  const auto cost = cases::Int(random, 0, 1) == 0 ? cases::RandomLine(random) : cases::RandomCurve(random);
  return {cost, cases::Int(random, 0, 3) == 0 ? 0 : cases::Uniform(random, 0, 3), together};
}

}  // namespace

TEST_CASE("start-ups overlap, bytes do not, and only the first group pays a round") {
  const std::vector<Gradient> gradients{{1, 0, 0}, {3, 1, 0}, {2, 2, 0}, {1, 20, 0}, {1, 20.5, 0}};
  const ArmedCosts costs{CostModel::Linear(4, 1), 0.5, 2};
  const auto prediction = PredictArmed(gradients, {{0}, {1}, {2}, {3}, {4}}, costs);
  // The first one ends before others begin; the third has its start-up behind it when the second leaves the wire; the
  // last two are alone.
  CHECK(prediction.starts_s == std::vector<double>{0, 5.5, 5.5, 20, 20.5});
  CHECK(prediction.ends_s == std::vector<double>{5.5, 12.5, 14.5, 25, 26});
  CHECK(prediction.finish_s == 26);
  CHECK(prediction.exposed_s == 5.5);
  // A third message waits for the end of the first of three.
  const auto at_once = PredictArmed({{1, 0, 0}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}}, {{0}, {1}, {2}, {3}}, costs);
  CHECK(at_once.starts_s == std::vector<double>{0, 5.5, 5.5, 10.5});
  CHECK(at_once.ends_s == std::vector<double>{5.5, 10.5, 11.5, 15.5});
}

TEST_CASE("messages of an armed step begin in order") {
  const std::vector<Gradient> gradients{{1, 0, 0}, {1, 30, 0}, {1, 1, 0}};
  const auto prediction = PredictArmed(gradients, {{0}, {1}, {2}}, {CostModel::Linear(4, 1), 0, 2});
  CHECK(prediction.starts_s == std::vector<double>{0, 30, 30});
  CHECK(prediction.ends_s == std::vector<double>{5, 35, 36});
}

TEST_CASE("in an armed step the types of a group are messages of their own, and so overlap") {
  const std::vector<Gradient> gradients{{1, 0, 0}, {2, 0, 7}, {3, 9, 7}, {1, 9, 0}, {1, 9, 7}};
  const auto prediction = PredictArmed(gradients, {{0, 1}, {2, 3, 4}}, {CostModel::Linear(4, 1), 0.5, 2});
  // The first group is negotiated, as ever with a round for each type.
  CHECK(prediction.ends_s == std::vector<double>{12, 21});
  CHECK(prediction.starts_s == std::vector<double>{0, 12});
}

TEST_CASE("a plan of one group is predicted as one that is not armed") {
  std::mt19937 random(21);
  for (int round = 0; round < 1000; ++round) {
    const auto gradients = cases::RandomGradients(random, cases::Int(random, 1, 20), cases::Int(random, 1, 3));
    const auto costs = RandomCosts(random, cases::Int(random, 1, 3));
    const auto groups = Plan(Policy::kSingle, gradients, costs.message);
    const auto negotiated = Predict(gradients, groups, costs.message.Plus(costs.coordination_s));
    REQUIRE(PredictArmed(gradients, groups, costs).ends_s == negotiated.ends_s);
  }
}

TEST_CASE("with one message at a time, and no round, the model is that of steps that are not armed") {
  std::mt19937 random(22);
  for (int round = 0; round < 10000; ++round) {
    const auto gradients = cases::RandomGradients(random, cases::Int(random, 1, 40), 1);
    const ArmedCosts costs{RandomCosts(random, 1).message, 0, 1};
    const auto groups = PlanArmed(gradients, costs);
    const auto exact = Plan(Policy::kOptimal, gradients, costs.message);
    REQUIRE(groups.size() <= exact.size());
    REQUIRE(cases::EndOf(gradients, groups, costs.message) ==
            doctest::Approx(cases::EndOf(gradients, exact, costs.message)).epsilon(1e-9));
    for (const auto& some : {groups, exact, Plan(Policy::kNone, gradients, costs.message)}) {
      const auto armed = PredictArmed(gradients, some, costs), negotiated = Predict(gradients, some, costs.message);
      REQUIRE(armed.starts_s == negotiated.starts_s);
      REQUIRE(armed.ends_s == negotiated.ends_s);
    }
  }
}

TEST_CASE("the optimal plan of armed steps ends when the best of all partitions does") {
  std::mt19937 random(23);
  int otherwise = 0, single = 0;
  for (int round = 0; round < 10000; ++round) {
    const int types = round % 3 == 0 ? cases::Int(random, 2, 3) : 1;
    const auto gradients = cases::RandomGradients(random, cases::Int(random, 1, 10), types);
    const auto costs = RandomCosts(random, round % 4 == 0 ? cases::Int(random, 1, 5) : 2);
    const double limit_bytes = round % 5 == 0 ? cases::Uniform(random, 0.5, 10) : 0;
    const auto groups = PlanArmed(gradients, costs, limit_bytes);
    ValidateGroups(groups, gradients.size());
    const auto end_of = [&](const Groups& some) { return cases::EndOfArmed(gradients, some, costs); };
    const double end_s = end_of(groups);
    REQUIRE(PredictArmed(gradients, groups, costs).finish_s == doctest::Approx(end_s).epsilon(1e-9));
    REQUIRE(end_s == doctest::Approx(cases::BruteForce(gradients, limit_bytes, end_of)).epsilon(1e-9));
    const auto negotiated =
        Plan(Policy::kOptimal, gradients, costs.message.Plus(costs.coordination_s), {0, limit_bytes});
    otherwise += end_of(negotiated) > end_s + 1e-9 ? 1 : 0;
    single += groups.size() == 1 && gradients.size() > 1 ? 1 : 0;
  }
  // The cases must be hard enough to tell this planner from the other one, and have both kinds of answers.
  CHECK(otherwise > 2000);
  CHECK(single > 500);
}

TEST_CASE("no other policy ends before the optimal plan of armed steps, on larger models") {
  std::mt19937 random(24);
  for (int round = 0; round < 300; ++round) {
    const auto gradients = cases::RandomGradients(random, cases::Int(random, 11, 200), cases::Int(random, 1, 4));
    const auto costs = RandomCosts(random, cases::Int(random, 1, 4));
    const double limit_bytes = round % 3 == 0 ? cases::Uniform(random, 1, 100) : 0;
    const double best_s = cases::EndOfArmed(gradients, PlanArmed(gradients, costs, limit_bytes), costs);
    for (const auto policy : {Policy::kNone, Policy::kSingle, Policy::kThreshold, Policy::kMgwfbp, Policy::kOptimal}) {
      const PlanLimits limits{cases::Uniform(random, 1, 200), limit_bytes};
      const auto groups = Plan(policy, gradients, costs.message.Plus(costs.coordination_s), limits);
      REQUIRE(best_s <= cases::EndOfArmed(gradients, groups, costs) + 1e-9);
    }
  }
}

TEST_CASE("of armed plans that end at the same time the one with fewer groups is taken") {
  std::vector<Gradient> gradients(17, Gradient{0.1, 1, 0});
  CHECK(PlanArmed(gradients, {CostModel::Linear(0, 0.3), 0, 2}).size() == 1);
  CHECK(PlanArmed(gradients, {CostModel::Linear(0, 0), 0, 2}).size() == 1);
  for (auto& gradient : gradients) {
    gradient.ready_s += 1e9;
  }
  CHECK(PlanArmed(gradients, {CostModel::Linear(0, 0.3), 0, 2}).size() == 1);
}

TEST_CASE("where time is left, a message more must bring a tenth of a start-up") {
  const ArmedCosts costs{CostModel::Linear(1, 1), 0, 2};
  // The second pair has 10 s before the next gradient comes.
  const auto plan = [&](double apart_s) {
    return PlanArmed({{1, 0, 0}, {0.5, 10, 0}, {0.5, 10 + apart_s, 0}, {1, 20, 0}}, costs);
  };
  CHECK(plan(0.05) == Groups{{0}, {1, 2}, {3}});
  CHECK(plan(0.2) == Groups{{0}, {1}, {2}, {3}});
  // The last pair is exposed: whatever it brings is taken.
  CHECK(PlanArmed({{1, 0, 0}, {0.5, 10, 0}, {0.5, 10.05, 0}}, costs) == Groups{{0}, {1}, {2}});
}

TEST_CASE("what armed steps cannot be planned with is refused and named") {
  const auto cost = CostModel::Linear(1, 1);
  const double infinite = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH_AS(PlanArmed({{1, 0, 0}}, {cost, -1, 2}),
                       "coordination_s is -1; it must be finite and not negative", std::invalid_argument);
  CHECK_THROWS_WITH_AS(PlanArmed({{1, 0, 0}}, {cost, 0, 0}), "together is 0; one message at least is under way",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(PredictArmed({{1, 0, 0}}, {{0}}, {cost, 0, 0}),
                       "together is 0; one message at least is under way", std::invalid_argument);
  CHECK_THROWS_AS(PlanArmed({{1, infinite, 0}}, {cost, 0, 2}), std::invalid_argument);
  CHECK_THROWS_AS(PlanArmed({{1, 0, 0}}, {cost, 0, 2}, -1), std::invalid_argument);
  CHECK_THROWS_AS(PredictArmed({{1, 0, 0}}, {}, {cost, 0, 2}), std::invalid_argument);
  CHECK(PlanArmed({}, {cost, 0, 2}).empty());
  CHECK(PredictArmed({}, {}, {cost, 0, 2}).finish_s == 0);
}
