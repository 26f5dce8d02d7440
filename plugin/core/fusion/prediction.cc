#include "core/fusion/prediction.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <limits>
#include <stdexcept>
#include <utility>

#include "core/arguments.h"

namespace paceline::core {

namespace {

double LastReadiness(const std::vector<Gradient>& gradients) {
  double last_s = -std::numeric_limits<double>::infinity();
  for (const auto& gradient : gradients) {
    last_s = std::max(last_s, gradient.ready_s);
  }
  return last_s;
}

void Finish(const std::vector<Gradient>& gradients, Prediction& prediction) {
  if (!gradients.empty()) {
    prediction.finish_s = prediction.ends_s.back();
    prediction.exposed_s = prediction.finish_s - LastReadiness(gradients);
  }
}

// Makes `cost` that of the group; returns when its last member is ready.
double Fill(GroupCost& cost, const std::vector<int64_t>& group, const std::vector<Gradient>& gradients) {
  cost.Clear();
  double ready_s = -std::numeric_limits<double>::infinity();
  for (const int64_t gradient : group) {
    cost.Add(gradient);
    ready_s = std::max(ready_s, gradients[gradient].ready_s);
  }
  return ready_s;
}

// Takes the next message from what is ready.
std::vector<int64_t> TakeMessage(std::deque<int64_t>& ready, const std::vector<Gradient>& gradients,
                                 double threshold_bytes) {
  std::vector<int64_t> message{ready.front()};
  ready.pop_front();
  const int32_t type = gradients[message.front()].type;
  double bytes = gradients[message.front()].bytes;
  double passed_over_bytes = 0;
  std::deque<int64_t> passed_over;
  while (!ready.empty()) {
    const auto& next = gradients[ready.front()];
    if (next.type == type && bytes + next.bytes <= threshold_bytes) {
      bytes += next.bytes;
      message.push_back(ready.front());
    } else {
      passed_over_bytes += next.bytes;
      if (bytes + passed_over_bytes > threshold_bytes) {
        break;
      }
      passed_over.push_back(ready.front());
    }
    ready.pop_front();
  }
  ready.insert(ready.begin(), passed_over.begin(), passed_over.end());
  return message;
}

// When the first cycle begins that finds something which is ready at `ready_s`; cycles with nothing to do begin
// `period_s` apart.
double FirstCycleAfter(double begin_s, double ready_s, double period_s) {
  if (ready_s <= begin_s) {
    return begin_s;
  }
  if (period_s <= 0) {
    return ready_s;
  }
  // The maximum is for rounding: what we wait for must be ready then.
  return std::max(ready_s, begin_s + std::ceil((ready_s - begin_s) / period_s) * period_s);
}

}  // namespace

Prediction Predict(const std::vector<Gradient>& gradients, const Groups& groups, const CostModel& cost) {
  ValidateGradients(gradients);
  ValidateGroups(groups, gradients.size());
  Prediction prediction;
  GroupCost group_cost(gradients, cost);
  double free_s = -std::numeric_limits<double>::infinity();
  for (const auto& group : groups) {
    const double start_s = std::max(free_s, Fill(group_cost, group, gradients));
    free_s = start_s + group_cost.seconds();
    prediction.starts_s.push_back(start_s);
    prediction.ends_s.push_back(free_s);
  }
  Finish(gradients, prediction);
  return prediction;
}

Prediction PredictArmed(const std::vector<Gradient>& gradients, const Groups& groups, const ArmedCosts& costs) {
  ValidateGradients(gradients);
  ValidateGroups(Whole(groups), gradients.size());
  ValidateArmedCosts(costs);
  if (!groups.empty() && PartsFrom(groups, 0) > 1) {
    throw std::invalid_argument("the first merge group is in parts; it is negotiated, and whole");
  }
  Prediction prediction;
  const auto negotiated = costs.message.Plus(costs.coordination_s);
  GroupCost first(gradients, negotiated), behind(gradients, costs.message);
  const double startup_s = costs.startup_s();
  MessageWindow window(costs.together, 0, 0);
  double begin_s = 0;  // of the last message
  for (size_t n = 0; n < groups.size();) {
    if (n == 0) {
      begin_s = Fill(first, groups[n], gradients);
      window = MessageWindow(costs.together, begin_s + costs.coordination_s, begin_s + first.seconds());
      prediction.starts_s.push_back(begin_s);
      prediction.ends_s.push_back(window.end_s());
      ++n;
      continue;
    }
    const double ready_s = Fill(behind, groups[n], gradients);
    const auto parts = PartsFrom(groups, n);
    for (size_t part = 0; part < parts; ++part) {
      double start_s = std::numeric_limits<double>::infinity();
      behind.EachMessage(static_cast<double>(parts), [&](double seconds) {
        begin_s = window.Send(std::max(begin_s, ready_s), seconds, startup_s);
        start_s = std::min(start_s, begin_s);
      });
      prediction.starts_s.push_back(start_s);
      prediction.ends_s.push_back(window.end_s());
    }
    n += parts;
  }
  Finish(gradients, prediction);
  return prediction;
}

StockPrediction PredictStock(const std::vector<Gradient>& gradients, const CostModel& cost, const StockTiming& timing) {
  ValidateGradients(gradients);
  RequireNotNegative("coordination_s", timing.coordination_s);
  RequireNotNegative("cycle_s", timing.cycle_s);
  RequireNotNegative("threshold_bytes", timing.threshold_bytes);
  const auto order = OrderOfReadiness(gradients);
  const double idle_s = std::max(timing.cycle_s, timing.coordination_s);
  StockPrediction stock;
  std::deque<int64_t> ready;
  double begin_s = 0;
  for (size_t next = 0; next < order.size();) {
    begin_s = FirstCycleAfter(begin_s, gradients[order[next]].ready_s, idle_s);
    while (next < order.size() && gradients[order[next]].ready_s <= begin_s) {
      ready.push_back(order[next++]);
    }
    double now_s = begin_s + timing.coordination_s;
    while (!ready.empty()) {
      auto message = TakeMessage(ready, gradients, timing.threshold_bytes);
      double bytes = 0;
      for (const int64_t gradient : message) {
        bytes += gradients[gradient].bytes;
      }
      stock.prediction.starts_s.push_back(now_s);
      now_s += cost(bytes);
      stock.prediction.ends_s.push_back(now_s);
      stock.groups.push_back(std::move(message));
    }
    begin_s = std::max(begin_s + timing.cycle_s, now_s);
  }
  Finish(gradients, stock.prediction);
  return stock;
}

}  // namespace paceline::core
