#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/fusion/armed_planner.h"
#include "core/fusion/planner.h"
#include "core/fusion/prediction.h"
#include "fusion/planner_cases.h"

using namespace paceline::core;

namespace {

ArmedCosts RandomCosts(std::mt19937& random, int64_t together) {
  const auto cost = cases::Int(random, 0, 1) == 0 ? cases::RandomLine(random) : cases::RandomCurve(random);
  const auto coordination_s = cases::Int(random, 0, 3) == 0 ? 0 : cases::Uniform(random, 0, 3);
  const auto work_s = cases::Int(random, 0, 1) == 0 ? 0 : cases::Uniform(random, 0, 1.5) * cost(0);
  return {cost, coordination_s, together, work_s};
}

// Earlier is better.
double Price(const std::vector<Gradient>& gradients, const Groups& groups, const ArmedCosts& costs) {
  const double price_s = 0.1 * std::max(costs.message(0), costs.work_s);
  return cases::EndOfArmed(gradients, groups, costs) + price_s * static_cast<double>(Whole(groups).size());
}

}  // namespace

TEST_CASE("start-ups overlap, bytes do not, and only the first group pays a round") {
  const std::vector<Gradient> gradients{{1, 0, 0}, {3, 1, 0}, {2, 2, 0}, {1, 20, 0}, {1, 20.5, 0}};
  const ArmedCosts costs{CostModel::Linear(4, 1), 0.5, 2};
  const auto prediction = PredictArmed(gradients, {{0}, {1}, {2}, {3}, {4}}, costs);
  // The second one begins while the first is under way, and has its start-up behind it at 5; the third waits until two
  // are not, and has its own behind it at 9.5; the last two are alone.
  CHECK(prediction.starts_s == std::vector<double>{0, 1, 5.5, 20, 20.5});
  CHECK(prediction.ends_s == std::vector<double>{5.5, 8.5, 11.5, 25, 26});
  CHECK(prediction.finish_s == 26);
  CHECK(prediction.exposed_s == 5.5);
  // Nothing begins before the round is over, and a message waits for the end of the last but one.
  const auto at_once = PredictArmed({{1, 0, 0}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}}, {{0}, {1}, {2}, {3}}, costs);
  CHECK(at_once.starts_s == std::vector<double>{0, 0.5, 5.5, 6.5});
  CHECK(at_once.ends_s == std::vector<double>{5.5, 6.5, 10.5, 11.5});
}

TEST_CASE("what processors work in start-ups does not overlap") {
  const std::vector<Gradient> gradients(4, Gradient{1, 0, 0});
  const auto ends_s = [&](double work_s) {
    return PredictArmed(gradients, {{0}, {1}, {2}, {3}}, {CostModel::Linear(4, 1), 0.5, 2, work_s}).ends_s;
  };
  CHECK(ends_s(1) == std::vector<double>{5.5, 7.5, 10.5, 12.5});
  CHECK(ends_s(4) == std::vector<double>{5.5, 10.5, 15.5, 20.5});
  CHECK(ends_s(9) == std::vector<double>{5.5, 15.5, 25.5, 35.5});
  // Where all is work, messages gain nothing, and few are best.
  CHECK(PlanArmed(gradients, {CostModel::Linear(4, 1), 0.5, 2, 4}).size() == 1);
}

TEST_CASE("a gradient in parts: each is a message, and the first group is whole") {
  const std::vector<Gradient> gradients{{9, 0, 0}, {9, 1, 0}, {1, 2, 0}};
  const ArmedCosts costs{CostModel::Linear(4, 1), 0.5, 2};
  const Groups groups{{0}, {1}, {1}, {1}, {2}};
  CHECK(InParts({{0}, {1}, {2}}, gradients, 3) == groups);
  CHECK(InParts({{0}, {1, 2}}, gradients, 3) == Groups{{0}, {1, 2}});
  CHECK(InParts({{0}, {1}, {2}}, gradients, 0) == Groups{{0}, {1}, {2}});
  CHECK(Whole(groups) == Groups{{0}, {1}, {2}});
  const auto prediction = PredictArmed(gradients, groups, costs);
  CHECK(prediction.starts_s == std::vector<double>{0, 1, 13.5, 16.5, 20.5});
  CHECK(prediction.ends_s == std::vector<double>{13.5, 16.5, 20.5, 23.5, 25.5});
  CHECK_THROWS_WITH_AS(PredictArmed(gradients, {{0}, {0}, {1}, {2}}, costs),
                       "the first merge group is in parts; it is negotiated, and whole", std::invalid_argument);
  CHECK_THROWS_AS(PredictArmed(gradients, {{0}, {1}, {2}, {1}}, costs), std::invalid_argument);
  CHECK_THROWS_AS(Predict(gradients, groups, costs.message), std::invalid_argument);
  // No message of the optimal plan is larger than 8 MiB, but for that of the first group.
  const double large_bytes = 20U << 20U;
  const std::vector<Gradient> large{{large_bytes, 0, 0}, {large_bytes, 0.01, 0}, {1000, 0.02, 0}};
  CHECK(PlanArmed(large, {CostModel::Linear(1e-3, 1e-8), 1e-3, 2}) == Groups{{0}, {1}, {1}, {1}, {2}});
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
  // The first group is negotiated, as ever with a round for each type; the second type's message behind waits for it.
  CHECK(prediction.ends_s == std::vector<double>{12, 20});
  CHECK(prediction.starts_s == std::vector<double>{0, 9});
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
    const auto groups = EarliestArmed(gradients, costs);
    const auto exact = Plan(Policy::kOptimal, gradients, costs.message);
    REQUIRE(Price(gradients, groups, costs) <= Price(gradients, exact, costs) + 1e-9);
    REQUIRE(cases::EndOf(gradients, groups, costs.message) >= cases::EndOf(gradients, exact, costs.message) - 1e-9);
    for (const auto& some : {groups, exact, Plan(Policy::kNone, gradients, costs.message)}) {
      const auto armed = PredictArmed(gradients, some, costs), negotiated = Predict(gradients, some, costs.message);
      REQUIRE(armed.starts_s == negotiated.starts_s);
      REQUIRE(armed.ends_s == negotiated.ends_s);
    }
  }
}

TEST_CASE("the optimal plan of armed steps is worth what the best of all partitions is") {
  std::mt19937 random(23);
  int otherwise = 0, single = 0, divided = 0;
  for (int round = 0; round < 10000; ++round) {
    const int types = round % 3 == 0 ? cases::Int(random, 2, 3) : 1;
    const auto gradients = cases::RandomGradients(random, cases::Int(random, 1, 10), types);
    const auto costs = RandomCosts(random, round % 4 == 0 ? cases::Int(random, 1, 5) : 2);
    const double limit_bytes = round % 5 == 0 ? cases::Uniform(random, 0.5, 10) : 0;
    const double part_bytes = round % 7 < 3 ? cases::Uniform(random, 0.3, 4) : 0;
    const auto groups = EarliestArmed(gradients, costs, limit_bytes, part_bytes);
    ValidateGroups(Whole(groups), gradients.size());
    const auto worth = [&](const Groups& some) {
      return Price(gradients, InParts(Whole(some), gradients, part_bytes), costs);
    };
    REQUIRE(groups == InParts(Whole(groups), gradients, part_bytes));
    REQUIRE(PredictArmed(gradients, groups, costs).finish_s ==
            doctest::Approx(cases::EndOfArmed(gradients, groups, costs)).epsilon(1e-9));
    REQUIRE(worth(groups) == doctest::Approx(cases::BruteForce(gradients, limit_bytes, worth)).epsilon(1e-9));
    const auto negotiated =
        Plan(Policy::kOptimal, gradients, costs.message.Plus(costs.coordination_s), {0, limit_bytes});
    otherwise += worth(negotiated) > worth(groups) + 1e-9 ? 1 : 0;
    single += groups.size() == 1 && gradients.size() > 1 ? 1 : 0;
    divided += groups.size() > Whole(groups).size() ? 1 : 0;
  }
  // The cases must be hard enough to tell this planner from the other one, and have both kinds of answers.
  CHECK(otherwise > 2000);
  CHECK(single > 250);
  CHECK(divided > 500);
}

TEST_CASE("no other policy is worth more than the optimal plan of armed steps, on larger models") {
  std::mt19937 random(24);
  for (int round = 0; round < 300; ++round) {
    const auto gradients = cases::RandomGradients(random, cases::Int(random, 11, 200), cases::Int(random, 1, 4));
    const auto costs = RandomCosts(random, cases::Int(random, 1, 4));
    const double limit_bytes = round % 3 == 0 ? cases::Uniform(random, 1, 100) : 0;
    const double best_s = Price(gradients, EarliestArmed(gradients, costs, limit_bytes), costs);
    for (const auto policy : {Policy::kNone, Policy::kSingle, Policy::kThreshold, Policy::kMgwfbp, Policy::kOptimal}) {
      const PlanLimits limits{cases::Uniform(random, 1, 200), limit_bytes};
      const auto groups = Plan(policy, gradients, costs.message.Plus(costs.coordination_s), limits);
      REQUIRE(best_s <= Price(gradients, groups, costs) + 1e-9);
    }
  }
}

TEST_CASE("of armed plans that end at the same time the one with fewer groups is taken") {
  std::vector<Gradient> gradients(17, Gradient{0.1, 1, 0});
  CHECK(EarliestArmed(gradients, {CostModel::Linear(0, 0.3), 0, 2}).size() == 1);
  CHECK(EarliestArmed(gradients, {CostModel::Linear(0, 0), 0, 2}).size() == 1);
  for (auto& gradient : gradients) {
    gradient.ready_s += 1e9;
  }
  CHECK(EarliestArmed(gradients, {CostModel::Linear(0, 0.3), 0, 2}).size() == 1);
}

TEST_CASE("a group more must bring its work and a tenth of what a start-up waits") {
  const std::vector<Gradient> gradients{{1, 0, 0}, {0.5, 5, 0}, {0.5, 10, 0}, {1, 20, 0}};
  const auto plan = [&](double work_s) {
    return EarliestArmed(gradients, {CostModel::Linear(2, 2), 0, 2, 2 * work_s});
  };
  // All but the last gradient are there in time however they travel; that one ends at 24 by itself, and at 28 with all
  // others.
  CHECK(plan(0) == Groups{{0, 1, 2}, {3}});
  CHECK(plan(1) == Groups{{0, 1, 2}, {3}});
  CHECK(plan(21) == Groups{{0, 1, 2, 3}});
}

TEST_CASE("headroom: start-ups and their work take twice as long, and bytes as many times as is said") {
  const ArmedCosts costs{CostModel::Linear(3, 2), 0.5, 2, 0.25};
  const auto more = WithHeadroom(costs, 1.5);
  CHECK(more.message(10) == 36);
  CHECK(more.work_s == 0.5);
  CHECK(more.coordination_s == 0.5);
}

TEST_CASE("a plan is good whether bytes take what was measured, a quarter or half as much again") {
  // Gradients come as fast as the wire takes them: for one that is slower all of it is late, and the last message may
  // as well be large.
  std::vector<Gradient> gradients;
  for (int n = 0; n < 40; ++n) {
    gradients.push_back({1, 1.0 * n, 0});
  }
  const ArmedCosts costs{CostModel::Linear(0.5, 1), 0, 2};
  const auto end_s = [&](const Groups& groups) { return PredictArmed(gradients, groups, costs).finish_s; };
  CHECK(end_s(EarliestArmed(gradients, WithHeadroom(costs, 1.5))) > 50);
  CHECK(end_s(PlanArmed(gradients, costs)) < 44);

  std::mt19937 random(25);
  int different = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto some = cases::RandomGradients(random, cases::Int(random, 1, 30), 1);
    const auto cost = RandomCosts(random, 2);
    const auto worth = [&](const Groups& groups) {
      double sum_s = 0;
      for (const double wire : {1.0, 1.25, 1.5}) {
        sum_s += Price(some, groups, WithHeadroom(cost, wire));
      }
      return sum_s / 3;
    };
    const auto planned = PlanArmed(some, cost);
    REQUIRE(WorthOf(some, planned, cost) == doctest::Approx(worth(planned)).epsilon(1e-9));
    for (const double wire : {1.0, 1.25, 1.5}) {
      const auto other = EarliestArmed(some, WithHeadroom(cost, wire));
      REQUIRE(worth(planned) <= worth(other) * (1 + 1e-9) + 1e-9);
      different += other == planned ? 0 : 1;
    }
  }
  CHECK(different > 200);
}

TEST_CASE("what armed steps cannot be planned with is refused and named") {
  const auto cost = CostModel::Linear(1, 1);
  const double infinite = std::numeric_limits<double>::infinity();
  CHECK_THROWS_WITH_AS(PlanArmed({{1, 0, 0}}, {cost, -1, 2}),
                       "coordination_s is -1; it must be finite and not negative", std::invalid_argument);
  CHECK_THROWS_WITH_AS(PlanArmed({{1, 0, 0}}, {cost, 0, 0}), "together is 0; at least one message is in flight",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(PredictArmed({{1, 0, 0}}, {{0}}, {cost, 0, 0}),
                       "together is 0; at least one message is in flight", std::invalid_argument);
  CHECK_THROWS_AS(PlanArmed({{1, infinite, 0}}, {cost, 0, 2}), std::invalid_argument);
  CHECK_THROWS_AS(PlanArmed({{1, 0, 0}}, {cost, 0, 2}, -1), std::invalid_argument);
  CHECK_THROWS_AS(PredictArmed({{1, 0, 0}}, {}, {cost, 0, 2}), std::invalid_argument);
  CHECK(PlanArmed({}, {cost, 0, 2}).empty());
  CHECK(PredictArmed({}, {}, {cost, 0, 2}).finish_s == 0);
}
