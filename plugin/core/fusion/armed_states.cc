#include "core/fusion/armed_states.h"

#include <algorithm>

#include "core/fusion/merge_groups.h"

namespace paceline::core {

namespace {

// Whether nothing can come of `other` that does not come of `one` as early.
bool Covers(const ArmedState& one, const ArmedState& other, double same_s) {
  const auto& ends_s = one.window.ends_s();
  return std::equal(ends_s.begin(), ends_s.end(), other.window.ends_s().begin(),
                    [same_s](double own_s, double others_s) { return own_s <= others_s + same_s; });
}

}  // namespace

ArmedState& ArmedCandidates::next() {
  if (count_ == states_.size()) {
    states_.push_back({MessageWindow(1, 0, 0)});
  }
  return states_[count_];
}

void ArmedCandidates::Keep() {
  const double end_s = states_[count_].window.end_s();
  by_end_.emplace_back(end_s, count_++);
  first_end_s_ = std::min(first_end_s_, end_s);
}

std::vector<ArmedState> ArmedCandidates::Take(double idle_s) {
  std::sort(by_end_.begin(), by_end_.end());
  std::vector<ArmedState> taken;
  if (first_end_s_ <= idle_s) {
    by_end_.resize(1);  // the others end later
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
