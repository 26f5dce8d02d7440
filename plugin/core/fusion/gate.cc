#include "core/fusion/gate.h"

#include <algorithm>
#include <utility>

namespace paceline::core {

Gate::Tensor& Gate::StateOf(int32_t tensor) {
  const auto index = static_cast<size_t>(tensor);
  if (index >= tensors_.size()) {
    tensors_.resize(index + 1, Tensor::kAway);
    seen_.resize(index + 1, 0);
  }
  return tensors_[index];
}

void Gate::BeginRound(int32_t group) {
  for (const int32_t member : members_[group]) {
    seen_[member] = 0;
  }
  groups_[group].seen = 0;
  groups_[group].open = groups_[group].strikes >= kMostStrikes;
}

void Gate::Complete(int32_t group) {
  Group& one = groups_[group];
  if (one.strikes > 0 && one.strikes < kMostStrikes && ++one.complete == kForgiving) {
    --one.strikes;
    one.complete = 0;
  }
  BeginRound(group);
}

void Gate::LetGo(Group& group, std::vector<int32_t>& out) {
  for (const int32_t member : group.held) {
    tensors_[member] = Tensor::kOffered;
    out.push_back(member);
  }
  held_ -= static_cast<int32_t>(group.held.size());
  group.held.clear();
}

std::vector<int32_t> Gate::Follow(std::vector<int32_t> group_of, const std::vector<bool>& reduced,
                                  const std::vector<bool>& earlier, int64_t timeout_ns) {
  std::vector<int32_t> out = Release();
  group_of_ = std::move(group_of);
  timeout_ns_ = timeout_ns;
  expired_ = 0;
  groups_.clear();
  members_.clear();
  std::fill(seen_.begin(), seen_.end(), 0);
  for (size_t t = 0; t < group_of_.size(); ++t) {
    const int32_t group = group_of_[t];
    if (group < 0) {
      continue;
    }
    if (static_cast<size_t>(group) >= groups_.size()) {
      groups_.resize(group + 1);
      members_.resize(group + 1);
    }
    const auto tensor = static_cast<int32_t>(t);
    members_[group].push_back(tensor);
    ++groups_[group].members;
    const bool on_its_way = StateOf(tensor) != Tensor::kAway && !(t < earlier.size() && earlier[t]);
    if (on_its_way || (t < reduced.size() && reduced[t])) {
      seen_[t] = 1;
      ++groups_[group].seen;
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].seen == groups_[g].members) {
      BeginRound(static_cast<int32_t>(g));
    }
  }
  return out;
}

std::vector<int32_t> Gate::Arrive(int32_t tensor) {
  Tensor& state = StateOf(tensor);
  const auto index = static_cast<size_t>(tensor);
  const int32_t number = index < group_of_.size() ? group_of_[index] : -1;
  if (state == Tensor::kOffered || number < 0) {
    state = Tensor::kOffered;
    return {tensor};
  }
  if (state == Tensor::kHeld) {
    return {};
  }
  waited_ns_ = 0;
  Group& group = groups_[number];
  std::vector<int32_t> out;
  if (seen_[index] != 0) {
    LetGo(group, out);
    BeginRound(number);
  }
  seen_[index] = 1;
  ++group.seen;
  if (group.open) {
    state = Tensor::kOffered;
    out.push_back(tensor);
  } else {
    state = Tensor::kHeld;
    group.held.push_back(tensor);
    ++held_;
    if (group.seen == group.members) {
      LetGo(group, out);
    }
  }
  if (group.seen == group.members) {
    Complete(number);
  }
  return out;
}

void Gate::Performed(int32_t tensor) { StateOf(tensor) = Tensor::kAway; }

std::vector<int32_t> Gate::Expire(int64_t now_ns) {
  std::vector<int32_t> out;
  waited_ns_ += std::min(now_ns - last_look_ns_, timeout_ns_ / kLooks + 1);
  last_look_ns_ = now_ns;
  if (held_ == 0 || waited_ns_ < timeout_ns_) {
    return out;
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    if (group.held.empty()) {
      continue;
    }
    LetGo(group, out);
    ++expired_;
    ++group.strikes;
    group.complete = 0;
    if (group.strikes % 2 == 0) {
      BeginRound(static_cast<int32_t>(g));
    } else {
      group.open = true;
    }
  }
  return out;
}

std::vector<int32_t> Gate::Release() {
  std::vector<int32_t> out;
  for (auto& group : groups_) {
    LetGo(group, out);
  }
  return out;
}

}  // namespace paceline::core
