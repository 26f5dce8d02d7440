#include "core/fusion/armed_states.h"

#include <algorithm>

#include "core/fusion/merge_groups.h"

namespace paceline::core {

namespace {

// Whether nothing can come of `other` that does not come of `one` as early and with as few groups.
bool Covers(const ArmedState& one, const ArmedState& other, double same_s) {
  const auto& ends_s = one.window.ends_s();
  const auto& other_s = other.window.ends_s();
  bool earlier = one.groups <= other.groups;
  for (size_t n = 0; n < ends_s.size(); ++n) {
    if (ends_s[n] > other_s[n] + same_s) {
      return false;
    }
    earlier = earlier || ends_s[n] < other_s[n] - same_s;
  }
  return earlier;
}

}  // namespace

ArmedState& ArmedCandidates::next() {
  if (count_ == states_.size()) {
    states_.push_back({MessageWindow(1, 0)});
  }
  return states_[count_];
}

void ArmedCandidates::Keep() {
  const double end_s = states_[count_].window.end_s();
  by_end_.emplace_back(end_s, count_++);
  first_end_s_ = std::min(first_end_s_, end_s);
}

std::vector<ArmedState> ArmedCandidates::Take(double idle_s, double gain_s) {
  std::sort(by_end_.begin(), by_end_.end());
  std::vector<ArmedState> taken;
  if (first_end_s_ <= idle_s) {
    const auto worth = [&](const auto& one) {
      return one.first + gain_s * static_cast<double>(states_[one.second].groups);
    };
    const auto busy = std::find_if(by_end_.begin(), by_end_.end(), [&](const auto& one) { return one.first > idle_s; });
    const auto best = std::min_element(by_end_.begin(), busy,
                                       [&](const auto& one, const auto& other) { return worth(one) < worth(other); });
    taken.push_back(states_[best->second]);
    by_end_.clear();  // the others end later
  }
  for (const auto& [end_s, place] : by_end_) {
    const auto& state = states_[place];
    const double same_s = kSameEnd * end_s;
    const auto covers = [&](const ArmedState& one) { return Covers(one, state, same_s); };
    // The latest is the likeliest to cover this one.
    if (std::none_of(taken.rbegin(), taken.rend(), covers)) {
      const auto covered = [&](const ArmedState& one) { return Covers(state, one, same_s); };
      taken.erase(std::remove_if(taken.begin(), taken.end(), covered), taken.end());
      taken.push_back(state);
    }
  }
  by_end_.clear();
  count_ = 0;
  first_end_s_ = std::numeric_limits<double>::infinity();
  return taken;
}

}  // namespace paceline::core
