// Random planning problems, and planners so plain that they can be trusted.

#ifndef PACELINE_UNIT_FUSION_PLANNER_CASES_H
#define PACELINE_UNIT_FUSION_PLANNER_CASES_H

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "core/fusion/armed_messages.h"
#include "core/fusion/planner.h"
#include "core/fusion/prediction.h"

namespace cases {

using paceline::core::ArmedCosts;
using paceline::core::CostModel;
using paceline::core::CostPoint;
using paceline::core::Gradient;
using paceline::core::Groups;

inline double Uniform(std::mt19937& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

inline int Int(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

// Gradients in any order; now and then two are ready at once, have no bytes, or are ready before time 0.
inline std::vector<Gradient> RandomGradients(std::mt19937& random, int count, int types) {
  std::vector<Gradient> gradients;
  double ready_s = Uniform(random, -2, 2);
  for (int n = 0; n < count; ++n) {
    ready_s += Int(random, 0, 4) == 0 ? 0 : Uniform(random, 0, 3);
    const double bytes = Int(random, 0, 9) == 0 ? 0 : Uniform(random, 0, 4);
    gradients.push_back({bytes, ready_s, Int(random, 0, types - 1)});
  }
  std::shuffle(gradients.begin(), gradients.end(), random);
  return gradients;
}

inline CostModel RandomLine(std::mt19937& random) {
  return CostModel::Linear(Int(random, 0, 5) == 0 ? 0 : Uniform(random, 0, 4), Uniform(random, 0, 2));
}

inline CostModel RandomCurve(std::mt19937& random) {
  std::vector<CostPoint> points;
  double bytes = 0, seconds = Uniform(random, 0, 2);
  for (int n = Int(random, 1, 8); n > 0; --n) {
    bytes += Uniform(random, 0.1, 5);
    seconds += Int(random, 0, 3) == 0 ? 0 : Uniform(random, 0, 4);
    points.push_back({bytes, seconds});
  }
  return CostModel::Measured(points);
}

// Gradients as the paper numbers them: given in order of the backward pass, from backward times and bytes.
inline std::vector<Gradient> FromBackward(const std::vector<double>& backward_s, const std::vector<double>& bytes) {
  std::vector<Gradient> gradients;
  double ready_s = 0;
  for (size_t n = 0; n < bytes.size(); ++n) {
    ready_s += backward_s[n];
    gradients.push_back({bytes[n], ready_s, 0});
  }
  return gradients;
}

// When a group is complete, and the bytes of each message in it by type.
struct GroupSums {
  double ready_s = -std::numeric_limits<double>::infinity();
  std::map<int32_t, double> bytes;
};

inline GroupSums SumsOf(const std::vector<Gradient>& gradients, const std::vector<int64_t>& group) {
  GroupSums sums;
  for (const int64_t n : group) {
    sums.bytes[gradients[n].type] += gradients[n].bytes;
    sums.ready_s = std::max(sums.ready_s, gradients[n].ready_s);
  }
  return sums;
}

// The end of the last send, straight from the definition.
inline double EndOf(const std::vector<Gradient>& gradients, const Groups& groups, const CostModel& cost) {
  double end_s = -std::numeric_limits<double>::infinity();
  for (const auto& group : groups) {
    const auto sums = SumsOf(gradients, group);
    end_s = std::max(end_s, sums.ready_s);
    for (const auto& [type, bytes] : sums.bytes) {
      end_s += cost(bytes);
    }
  }
  return end_s;
}

// The same where steps are armed: every message begins, has the wire, leaves it and ends.
inline double EndOfArmed(const std::vector<Gradient>& gradients, const Groups& groups, const ArmedCosts& costs) {
  const auto together = static_cast<size_t>(costs.together);
  const double alone_s = costs.message(0);
  std::vector<double> begins_s, ends_s;  // first those of the first group
  for (const auto& group : groups) {
    const auto sums = SumsOf(gradients, group);
    const auto parts = static_cast<double>(std::count(groups.begin(), groups.end(), group));
    if (&group == &groups[0]) {
      begins_s.push_back(sums.ready_s + costs.coordination_s);
      ends_s.push_back(sums.ready_s);
      for (const auto& [type, bytes] : sums.bytes) {
        ends_s[0] += costs.message(bytes) + costs.coordination_s;
      }
      continue;
    }
    for (const auto& [type, bytes] : sums.bytes) {
      const size_t n = ends_s.size();
      double begin_s = std::max(sums.ready_s, begins_s[n - 1]);
      begin_s = n >= together ? std::max(begin_s, ends_s[n - together]) : begin_s;
      const double wire_s = costs.message(bytes / parts) - alone_s;
      begins_s.push_back(begin_s);
      ends_s.push_back(std::max(begin_s + alone_s, ends_s[n - 1] + costs.work_s) + wire_s);
    }
  }
  return ends_s.back();
}

// The earliest end over all 2^(L-1) partitions into neighbours; `end_of` says when a partition ends.
inline double BruteForce(const std::vector<Gradient>& gradients, double max_group_bytes,
                         const std::function<double(const Groups& groups)>& end_of) {
  const auto order = paceline::core::OrderOfReadiness(gradients);
  double best_s = std::numeric_limits<double>::infinity();
  for (uint32_t cuts = 0; cuts < 1U << (order.size() - 1); ++cuts) {
    Groups groups{{order[0]}};
    double bytes = gradients[order[0]].bytes;
    bool allowed = true;
    for (size_t n = 1; n < order.size(); ++n) {
      if ((cuts >> (n - 1) & 1U) != 0) {
        groups.emplace_back();
        bytes = 0;
      }
      groups.back().push_back(order[n]);
      bytes += gradients[order[n]].bytes;
      allowed = allowed && (groups.back().size() == 1 || max_group_bytes == 0 || bytes <= max_group_bytes);
    }
    if (allowed) {
      best_s = std::min(best_s, end_of(groups));
    }
  }
  return best_s;
}

}  // namespace cases

#endif  // PACELINE_UNIT_FUSION_PLANNER_CASES_H
