#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "core/fusion/merge_groups.h"
#include "core/fusion/prediction.h"

using namespace paceline::core;

TEST_CASE("a group waits for its last member and for the group before it") {
  const std::vector<Gradient> gradients{{2, 5, 0}, {3, 1, 0}, {4, 20, 0}, {1, 4, 0}};
  const auto prediction = Predict(gradients, {{1, 3}, {0}, {2}}, CostModel::Linear(1, 2));
  CHECK(prediction.starts_s == std::vector<double>{4, 13, 20});
  CHECK(prediction.ends_s == std::vector<double>{13, 18, 29});
  CHECK(prediction.finish_s == 29);
  CHECK(prediction.exposed_s == 9);
}

TEST_CASE("a group pays for one message of each type in it") {
  const std::vector<Gradient> gradients{{2, 0, 0}, {3, 0, 7}, {4, 0, 0}};
  CHECK(Predict(gradients, {{0, 1, 2}}, CostModel::Linear(10, 1)).finish_s == 29);
  CHECK(Predict(gradients, {{0, 2}, {1}}, CostModel::Linear(10, 1)).finish_s == 29);
  CHECK(Predict(gradients, {{0, 1, 2}}, CostModel::Measured({{3, 1}, {6, 5}})).finish_s == 6);
}

TEST_CASE("groups of a user's policy may be in any order") {
  const std::vector<Gradient> gradients{{1, 0, 0}, {1, 10, 0}, {1, 2, 0}};
  const auto prediction = Predict(gradients, {{1, 0}, {2}}, CostModel::Linear(1, 0));
  CHECK(prediction.ends_s == std::vector<double>{11, 12});
  CHECK(prediction.exposed_s == 2);
  CHECK(Predict({}, {}, CostModel::Linear(1, 1)).finish_s == 0);
}

TEST_CASE("groups that repeat, omit or invent a tensor are refused by its number") {
  CHECK_NOTHROW(ValidateGroups({{2, 0}, {1}}, 3));
  CHECK_NOTHROW(ValidateGroups({}, 0));
  const auto refused = [](const Groups& groups, const char* text) {
    CHECK_THROWS_WITH_AS(ValidateGroups(groups, 3), text, std::invalid_argument);
    CHECK_THROWS_WITH_AS(Predict({{1, 0, 0}, {1, 0, 0}, {1, 0, 0}}, groups, CostModel::Linear(1, 1)), text,
                         std::invalid_argument);
  };
  refused({{0, 1}, {2, 1}}, "tensor 1 is in two merge groups, 0 and 1");
  refused({{0, 1}, {2, 2}}, "tensor 2 is twice in merge group 1");
  refused({{0}, {2}}, "tensor 1 is in no merge group");
  refused({}, "tensor 0 is in no merge group");
  refused({{0, 1}, {}, {2}}, "merge group 1 is empty");
  refused({{0, 1, 2, 3}}, "tensor 3 in merge group 0 does not exist: there are 3 tensors, counted from 0");
  refused({{0, 1, 2}, {-1}}, "tensor -1 in merge group 1 does not exist: there are 3 tensors, counted from 0");
}

TEST_CASE("a stock cycle merges what is ready when it begins, after one round of coordination") {
  // Cycles begin at 0 (nothing ready), 5, 10 (the second waits until then) ...
  const std::vector<Gradient> gradients{{1, 4, 0}, {1, 6, 0}, {1, 7, 0}};
  const auto stock = PredictStock(gradients, CostModel::Linear(1, 1), {0.5, 5, 100});
  CHECK(stock.groups == Groups{{0}, {1, 2}});
  CHECK(stock.prediction.starts_s == std::vector<double>{5.5, 10.5});
  CHECK(stock.prediction.ends_s == std::vector<double>{7.5, 13.5});
  CHECK(stock.prediction.finish_s == 13.5);
  CHECK(stock.prediction.exposed_s == 6.5);
}

TEST_CASE("a stock cycle longer than the cycle time is followed by the next at once") {
  const std::vector<Gradient> gradients{{8, 0, 0}, {1, 1, 0}, {1, 9, 0}};
  const auto stock = PredictStock(gradients, CostModel::Linear(1, 1), {0.5, 5, 100});
  // 0: send until 9.5; the other two are ready then.
  CHECK(stock.groups == Groups{{0}, {1, 2}});
  CHECK(stock.prediction.starts_s == std::vector<double>{0.5, 10});
  CHECK(stock.prediction.finish_s == 13);
}

TEST_CASE("idle stock cycles last as long as their coordination where that is longer") {
  const auto stock = PredictStock({{1, 7, 0}}, CostModel::Linear(1, 1), {3, 1, 100});
  CHECK(stock.prediction.starts_s == std::vector<double>{12});  // begins at 0, 3, 6, 9
  // Neither lasts any time: the thread wakes when there is something to do.
  CHECK(PredictStock({{1, 7, 0}}, CostModel::Linear(1, 1), {0, 0, 100}).prediction.starts_s == std::vector<double>{7});
  // Ready before the first cycle.
  CHECK(PredictStock({{1, -7, 0}}, CostModel::Linear(1, 1), {3, 1, 100}).prediction.starts_s == std::vector<double>{3});
}

TEST_CASE("the stock threshold splits a cycle's messages and its round is paid once") {
  const std::vector<Gradient> gradients{{4, 0, 0}, {4, 0, 0}, {4, 0, 0}, {20, 0, 0}, {1, 0, 0}};
  const auto stock = PredictStock(gradients, CostModel::Linear(1, 0), {0.5, 5, 10});
  CHECK(stock.groups == Groups{{0, 1}, {2}, {3}, {4}});
  CHECK(stock.prediction.starts_s == std::vector<double>{0.5, 1.5, 2.5, 3.5});
  CHECK(PredictStock(gradients, CostModel::Linear(1, 0), {0.5, 5, 0}).groups.size() == 5);
}

TEST_CASE("the stock merge looks past another type while that would still fit") {
  const std::vector<Gradient> mixed{{4, 0, 0}, {4, 0, 1}, {4, 0, 0}, {4, 0, 1}};
  const auto groups = [&](double threshold_bytes) {
    return PredictStock(mixed, CostModel::Linear(1, 0), {0, 1, threshold_bytes}).groups;
  };
  CHECK(groups(100) == Groups{{0, 2}, {1, 3}});
  CHECK(groups(8) == Groups{{0, 2}, {1, 3}});
  CHECK(groups(7) == Groups{{0}, {1}, {2}, {3}});
}

TEST_CASE("times and sizes of the stock loop are checked") {
  const double infinite = std::numeric_limits<double>::infinity();
  const auto cost = CostModel::Linear(1, 1);
  CHECK_THROWS_WITH_AS(PredictStock({}, cost, {-1, 0, 0}), "coordination_s is -1; it must be finite and not negative",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(PredictStock({}, cost, {0, infinite, 0}), "cycle_s is inf; it must be finite and not negative",
                       std::invalid_argument);
  CHECK_THROWS_AS(PredictStock({}, cost, {0, 0, -1}), std::invalid_argument);
  CHECK_THROWS_AS(PredictStock({{-1, 0, 0}}, cost, {0, 0, 0}), std::invalid_argument);
  CHECK(PredictStock({}, cost, {0, 0, 0}).groups.empty());
}
