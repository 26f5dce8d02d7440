#include "core/fusion/merge_plan.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace paceline::core {

namespace {

// version, active, patience, number of tensors
constexpr size_t kHeader = 4;
constexpr double kMostVersion = 9007199254740992.0;  // 2^53: whole numbers of a double
constexpr double kMostTimeoutS = 1e9;                // in nanoseconds it is an int64_t
constexpr double kMostParts = 1073741824.0;          // 2^30

[[noreturn]] void Refuse(const std::string& what) { throw std::invalid_argument("not a plan: " + what); }

}  // namespace

int32_t MergePlan::groups() const {
  int32_t last = -1;
  for (const int32_t group : group_of) {
    last = std::max(last, group);
  }
  return last + 1;
}

MergePlan DecodePlan(const std::vector<double>& values) {
  for (size_t n = 0; n < values.size(); ++n) {
    if (!std::isfinite(values[n]) || values[n] < 0) {
      Refuse("value " + std::to_string(n) + " is " + std::to_string(values[n]));
    }
  }
  constexpr size_t before = kHeader + MergePlan::kExpectations;
  if (values.size() < before || values[3] > static_cast<double>(values.size()) ||
      values.size() != before + 2 * static_cast<size_t>(values[3])) {
    Refuse(std::to_string(values.size()) + " values");
  }
  if (values[0] > kMostVersion) {
    Refuse("version " + std::to_string(values[0]));
  }
  if (values[2] > kMostTimeoutS) {
    Refuse("a timeout of " + std::to_string(values[2]) + " s");
  }
  MergePlan plan;
  plan.version = static_cast<int64_t>(values[0]);
  plan.active = values[1] != 0;
  plan.timeout_s = values[2];
  for (size_t n = 0; n < MergePlan::kExpectations; ++n) {
    plan.expected[n] = values[kHeader + n] == 0 ? -1 : values[kHeader + n] - 1;
  }
  const auto tensors = static_cast<size_t>(values[3]);
  for (size_t n = before; n < before + tensors; ++n) {
    if (values[n] > values[3] || values[n + tensors] > kMostParts) {
      Refuse("tensor " + std::to_string(n - before) + " is in group " + std::to_string(values[n]) + ", in " +
             std::to_string(values[n + tensors]) + " parts");
    }
    plan.group_of.push_back(static_cast<int32_t>(values[n]) - 1);
    plan.parts_of.push_back(std::max(static_cast<int32_t>(values[n + tensors]), 1));
  }
  std::vector<int32_t> members(static_cast<size_t>(plan.groups()), 0);
  for (const int32_t group : plan.group_of) {
    if (group >= 0) {
      ++members[static_cast<size_t>(group)];
    }
  }
  const auto empty = std::find(members.begin(), members.end(), 0);
  if (empty != members.end()) {
    Refuse("group " + std::to_string(empty - members.begin()) + " has no members");
  }
  for (size_t n = 0; n < tensors; ++n) {
    const auto group = plan.group_of[n];
    if (plan.parts_of[n] > 1 && (group < 0 || members[static_cast<size_t>(group)] > 1)) {
      Refuse("tensor " + std::to_string(n) + " is in parts, and not alone in a group");
    }
  }
  return plan;
}

}  // namespace paceline::core
