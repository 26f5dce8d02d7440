#include "core/coordination/round_pacing.h"

#include <algorithm>

namespace paceline::core {

bool RoundPacing::HandedIn() {
  if (state_ != State::kIdle && state_ != State::kHeld) {
    return false;
  }
  const auto before = Due();
  state_ = State::kGathering;
  return Due() < before;
}

bool RoundPacing::Held(Clock::time_point now) {
  if (state_ != State::kIdle && state_ != State::kHeld) {
    return false;
  }
  const auto before = Due();
  state_ = State::kHeld;
  last_held_ = now;
  return Due() < before;
}

bool RoundPacing::WaitedFor() {
  if (state_ != State::kGathering && state_ != State::kHeld) {
    return false;
  }
  state_ = State::kUrgent;
  return true;
}

void RoundPacing::Entered(Clock::time_point now) {
  if (state_ != State::kIdle) {
    last_own_ = now;
  }
  last_ = now;
  state_ = State::kIdle;
}

RoundPacing::Clock::time_point RoundPacing::Due() const {
  // Never later than an idle rank would come.
  const auto latest = last_ + idle_;
  switch (state_) {
    case State::kIdle:
      return latest;
    case State::kHeld:
      return std::min(last_held_ + kHold, latest);
    case State::kGathering:
      return std::min(last_own_ + cycle_, latest);
    case State::kUrgent:
      break;
  }
  return {};
}

}  // namespace paceline::core
