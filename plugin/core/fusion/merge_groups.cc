#include "core/fusion/merge_groups.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace paceline::core {

void ValidateGradients(const std::vector<Gradient>& gradients) {
  for (size_t n = 0; n < gradients.size(); ++n) {
    const auto& gradient = gradients[n];
    const bool bad_bytes = !std::isfinite(gradient.bytes) || gradient.bytes < 0;
    if (bad_bytes || !std::isfinite(gradient.ready_s)) {
      std::ostringstream text;
      text << "tensor " << n << (bad_bytes ? " has " : " is ready at ")
           << (bad_bytes ? gradient.bytes : gradient.ready_s)
           << (bad_bytes ? " bytes; sizes must be finite and not negative" : " s; times must be finite");
      throw std::invalid_argument(text.str());
    }
  }
}

void ValidateGroups(const Groups& groups, size_t tensors) {
  constexpr auto kNowhere = std::numeric_limits<size_t>::max();
  std::vector<size_t> group_of(tensors, kNowhere);
  const auto refuse = [](const std::string& text) { throw std::invalid_argument(text); };
  for (size_t group = 0; group < groups.size(); ++group) {
    if (groups[group].empty()) {
      refuse("merge group " + std::to_string(group) + " is empty");
    }
    for (const int64_t tensor : groups[group]) {
      const std::string name = "tensor " + std::to_string(tensor);
      if (tensor < 0 || static_cast<size_t>(tensor) >= tensors) {
        refuse(name + " in merge group " + std::to_string(group) + " does not exist: there are " +
               std::to_string(tensors) + " tensors, counted from 0");
      }
      auto& known = group_of[static_cast<size_t>(tensor)];
      if (known == group) {
        refuse(name + " is twice in merge group " + std::to_string(group));
      }
      if (known != kNowhere) {
        refuse(name + " is in two merge groups, " + std::to_string(known) + " and " + std::to_string(group));
      }
      known = group;
    }
  }
  const auto missing = std::find(group_of.begin(), group_of.end(), kNowhere);
  if (missing != group_of.end()) {
    refuse("tensor " + std::to_string(missing - group_of.begin()) + " is in no merge group");
  }
}

size_t PartsFrom(const Groups& groups, size_t group) {
  size_t parts = 1;
  while (groups[group].size() == 1 && group + parts < groups.size() && groups[group + parts] == groups[group]) {
    ++parts;
  }
  return parts;
}

Groups Whole(const Groups& groups) {
  Groups whole;
  for (size_t n = 0; n < groups.size(); n += PartsFrom(groups, n)) {
    whole.push_back(groups[n]);
  }
  return whole;
}

size_t PartsOf(double bytes, double most_bytes) {
  return most_bytes > 0 && bytes > most_bytes ? static_cast<size_t>(std::ceil(bytes / most_bytes)) : 1;
}

Groups InParts(const Groups& whole, const std::vector<Gradient>& gradients, double most_bytes) {
  Groups groups;
  for (const auto& group : whole) {
    const bool divides = group.size() == 1 && !groups.empty();
    groups.insert(groups.end(), divides ? PartsOf(gradients[group[0]].bytes, most_bytes) : 1, group);
  }
  return groups;
}

std::vector<int64_t> OrderOfReadiness(const std::vector<Gradient>& gradients) {
  std::vector<int64_t> order(gradients.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
    return std::pair(gradients[x].ready_s, x) < std::pair(gradients[y].ready_s, y);
  });
  return order;
}

GroupCost::GroupCost(const std::vector<Gradient>& gradients, const CostModel& cost)
    : gradients_(gradients), cost_(cost) {
  std::map<int32_t, size_t> numbers;
  for (const auto& gradient : gradients) {
    numbers[gradient.type] = 0;
  }
  size_t number = 0;
  for (auto& one : numbers) {
    one.second = number++;
  }
  type_of_.reserve(gradients.size());
  for (const auto& gradient : gradients) {
    type_of_.push_back(numbers[gradient.type]);
  }
  messages_.resize(numbers.size());
}

void GroupCost::Clear() {
  for (const size_t type : present_) {
    messages_[type] = {};
  }
  present_.clear();
  bytes_ = 0;
  seconds_ = 0;
}

void GroupCost::Add(int64_t gradient) {
  auto& message = messages_[type_of_[gradient]];
  if (message.tensors++ == 0) {
    present_.insert(std::upper_bound(present_.begin(), present_.end(), type_of_[gradient]), type_of_[gradient]);
  }
  bytes_ += gradients_[gradient].bytes;
  message.bytes += gradients_[gradient].bytes;
  const double seconds = cost_(message.bytes);
  // Exact for one type: nothing of what was added before is left to round.
  seconds_ = present_.size() == 1 ? seconds : seconds_ + (seconds - message.seconds);
  message.seconds = seconds;
}

}  // namespace paceline::core
