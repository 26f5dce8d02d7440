#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/fusion/planner.h"
#include "core/fusion/prediction.h"
#include "doctest/doctest.h"
#include "fusion/planner_cases.h"

using namespace paceline::core;
using cases::EndOf;
using cases::FromBackward;

namespace {

Groups PlanLine(Policy policy, const std::vector<Gradient>& gradients, double a_s, double b_s_per_byte) {
  return Plan(policy, gradients, CostModel::Linear(a_s, b_s_per_byte));
}

// Algorithm 1 as the paper writes it, layers L..1 at positions 0..L-1, everything computed anew after each merge.
// Returns which layers were merged into the next one.
std::vector<bool> AlgorithmOne(const std::vector<double>& backward_s, std::vector<double> bytes, double a, double b) {
  const size_t count = bytes.size();
  std::vector<double> tau_b(count), tau_c(count), t_c(count);
  std::vector<bool> merged(count, false);
  for (size_t l = 0; l < count; ++l) {
    t_c[l] = a + b * bytes[l];
    tau_b[l] = l == 0 ? 0 : tau_b[l - 1] + backward_s[l - 1];
  }
  const auto compute_tau_c = [&] {
    tau_c[0] = tau_b[0] + backward_s[0];
    for (size_t l = 1; l < count; ++l) {
      tau_c[l] = std::max(tau_c[l - 1] + t_c[l - 1], tau_b[l] + backward_s[l]);
    }
  };
  compute_tau_c();
  for (size_t l = 0; l + 1 < count; ++l) {
    if (tau_b[l + 1] + backward_s[l + 1] - tau_c[l] < a) {
      t_c[l] = 0;
      bytes[l + 1] += bytes[l];
      t_c[l + 1] = a + b * bytes[l + 1];
      compute_tau_c();
      merged[l] = true;
    }
  }
  return merged;
}

}  // namespace

TEST_CASE("three layers on which the greedy rule is not optimal") {
  const auto gradients = FromBackward({1, 3, 4}, {3, 1, 1});
  const auto cost = CostModel::Linear(4, 1);
  const auto end_s = [&](Policy policy) { return EndOf(gradients, Plan(policy, gradients, cost), cost); };
  CHECK(Plan(Policy::kMgwfbp, gradients, cost) == Groups{{0, 1}, {2}});
  CHECK(Plan(Policy::kOptimal, gradients, cost) == Groups{{0}, {1, 2}});
  CHECK(end_s(Policy::kMgwfbp) == 17);
  CHECK(end_s(Policy::kNone) == 18);
  CHECK(end_s(Policy::kSingle) == 17);
  CHECK(end_s(Policy::kOptimal) == 14);
}

TEST_CASE("MG-WFBP decides as the paper's algorithm does, whatever the time of the forward pass") {
  std::mt19937 random(20190712);
  for (int round = 0; round < 5000; ++round) {
    // Quarters add up without rounding, so that the strict comparison meets ties and both sides agree on them.
    std::vector<double> backward_s, bytes;
    for (int l = cases::Int(random, 1, 12); l > 0; --l) {
      backward_s.push_back(0.25 * cases::Int(random, 0, 12));
      bytes.push_back(0.25 * cases::Int(random, 0, 16));
    }
    const double a = 0.25 * cases::Int(random, 0, 16), b = 0.25 * cases::Int(random, 0, 8);
    auto gradients = FromBackward(backward_s, bytes);
    const auto groups = PlanLine(Policy::kMgwfbp, gradients, a, b);
    const auto merged = AlgorithmOne(backward_s, bytes, a, b);
    std::vector<bool> ours(bytes.size(), true);
    for (const auto& group : groups) {
      ours[static_cast<size_t>(group.back())] = false;
    }
    REQUIRE(ours == merged);
    for (auto& gradient : gradients) {
      gradient.ready_s += 1024;
    }
    REQUIRE(PlanLine(Policy::kMgwfbp, gradients, a, b) == groups);
  }
}

TEST_CASE("MG-WFBP is never worse than every tensor alone or all together") {
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    const auto gradients = cases::RandomGradients(random, cases::Int(random, 1, 40), 1);
    const auto cost = cases::RandomLine(random);
    const auto end_s = [&](Policy policy) { return EndOf(gradients, Plan(policy, gradients, cost), cost); };
    REQUIRE(end_s(Policy::kMgwfbp) <= std::min(end_s(Policy::kNone), end_s(Policy::kSingle)) + 1e-9);
  }
}

TEST_CASE("without start-up time MG-WFBP merges only what has to wait anyway") {
  // The second is ready while the first waits for nothing: apart. The third is ready while the second is being sent,
  // the fourth before the third can be: together.
  const auto gradients = FromBackward({1, 1, 1, 0.5}, {1, 4, 1, 1});
  CHECK(PlanLine(Policy::kMgwfbp, gradients, 0, 1) == Groups{{0}, {1}, {2, 3}});
  std::mt19937 random(6);
  for (int round = 0; round < 1000; ++round) {
    const auto some = cases::RandomGradients(random, 12, 1);
    const auto cost = CostModel::Linear(0, cases::Uniform(random, 0, 2));
    double free_s = -std::numeric_limits<double>::infinity();
    for (const auto& group : Plan(Policy::kMgwfbp, some, cost)) {
      for (size_t n = 1; n < group.size(); ++n) {
        REQUIRE(some[static_cast<size_t>(group[n])].ready_s < free_s);
      }
      for (const int64_t n : group) {
        free_s = std::max(free_s, some[static_cast<size_t>(n)].ready_s);
      }
      for (const int64_t n : group) {
        free_s += cost(some[static_cast<size_t>(n)].bytes);
      }
    }
  }
}

TEST_CASE("gradients may be given in any order; those ready at once keep theirs") {
  const std::vector<Gradient> gradients{{1, 3, 0}, {1, 1, 0}, {1, 3, 0}, {1, 2, 0}};
  CHECK(OrderOfReadiness(gradients) == std::vector<int64_t>{1, 3, 0, 2});
  CHECK(PlanLine(Policy::kNone, gradients, 1, 1) == Groups{{1}, {3}, {0}, {2}});
  CHECK(PlanLine(Policy::kSingle, gradients, 1, 1) == Groups{{1, 3, 0, 2}});
}

TEST_CASE("the threshold counts bytes in order of readiness; 0 leaves every tensor alone") {
  const std::vector<Gradient> gradients{{5, 0, 0}, {5, 1, 0}, {1, 2, 0}, {20, 3, 0}, {2, 4, 0}};
  const auto cost = CostModel::Linear(1, 1);
  CHECK(Plan(Policy::kThreshold, gradients, cost, {10, 0}) == Groups{{0, 1}, {2}, {3}, {4}});
  CHECK(Plan(Policy::kThreshold, gradients, cost, {10, 9}) == Groups{{0}, {1, 2}, {3}, {4}});
  CHECK(Plan(Policy::kThreshold, gradients, cost, {1000, 0}) == Groups{{0, 1, 2, 3, 4}});
  CHECK(Plan(Policy::kThreshold, gradients, cost, {0, 0}).size() == 5);
}

TEST_CASE("no policy makes a larger group than allowed, and a tensor above the limit goes alone") {
  std::mt19937 random(8);
  for (int round = 0; round < 2000; ++round) {
    const auto gradients = cases::RandomGradients(random, cases::Int(random, 1, 20), cases::Int(random, 1, 3));
    const auto cost = round % 2 == 0 ? cases::RandomLine(random) : cases::RandomCurve(random);
    const double limit_bytes = cases::Uniform(random, 0.5, 8);
    for (const auto policy : {Policy::kNone, Policy::kSingle, Policy::kThreshold, Policy::kMgwfbp, Policy::kOptimal}) {
      const auto groups = Plan(policy, gradients, cost, {1e9, limit_bytes});
      ValidateGroups(groups, gradients.size());
      for (const auto& group : groups) {
        double bytes = 0;
        for (const int64_t n : group) {
          bytes += gradients[static_cast<size_t>(n)].bytes;
        }
        REQUIRE((group.size() == 1 || bytes <= limit_bytes * (1 + 1e-12)));
      }
    }
  }
}

TEST_CASE("merging different types saves no start-up, so MG-WFBP merges them only where it costs nothing") {
  const auto cost = CostModel::Linear(4, 1);
  // The second comes before the first has started up.
  CHECK(Plan(Policy::kMgwfbp, {{1, 0, 0}, {1, 2, 0}}, cost) == Groups{{0, 1}});
  CHECK(Plan(Policy::kMgwfbp, {{1, 0, 0}, {1, 2, 1}}, cost) == Groups{{0}, {1}});
  // 1 and 2 are both ready while 0 is being sent; 3 has the type of 1.
  CHECK(Plan(Policy::kMgwfbp, {{9, 0, 0}, {1, 5, 0}, {1, 6, 1}, {1, 7, 0}}, cost) == Groups{{0}, {1, 2, 3}});
}

TEST_CASE("what cannot be planned is refused and named") {
  const auto cost = CostModel::Linear(1, 1);
  const double infinite = std::numeric_limits<double>::infinity();
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto message = [&](const std::vector<Gradient>& gradients, const PlanLimits& limits) -> std::string {
    try {
      Plan(Policy::kOptimal, gradients, cost, limits);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message({{1, 0, 0}, {-4, 0, 0}}, {}) == "tensor 1 has -4 bytes; sizes must be finite and not negative");
  CHECK(message({{infinite, 0, 0}}, {}) == "tensor 0 has inf bytes; sizes must be finite and not negative");
  CHECK(message({{1, 0, 0}, {1, 0, 0}, {1, none, 0}}, {}) == "tensor 2 is ready at nan s; times must be finite");
  CHECK(message({{1, 0, 0}}, {0, -1}) == "max_group_bytes is -1; it must be finite and not negative");
  CHECK(message({{1, 0, 0}}, {infinite, 0}) == "threshold_bytes is inf; it must be finite and not negative");
  CHECK_THROWS_WITH_AS(PolicyOf("greedy"),
                       "no fusion policy is called 'greedy'; known are: none, single, threshold, mgwfbp, optimal",
                       std::invalid_argument);
  CHECK(PolicyOf("mgwfbp") == Policy::kMgwfbp);
}

TEST_CASE("no gradients make no groups") {
  for (const auto policy : {Policy::kNone, Policy::kSingle, Policy::kThreshold, Policy::kMgwfbp, Policy::kOptimal}) {
    CHECK(Plan(policy, {}, CostModel::Linear(1, 1)).empty());
  }
}

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
