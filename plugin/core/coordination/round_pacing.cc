#include "core/coordination/round_pacing.h"

#include <algorithm>

namespace paceline::core {

bool RoundPacing::Submitted() {
  if (state_ == State::kGathering || state_ == State::kUrgent) {
    return false;
  }
  const auto before = Due();
  state_ = State::kGathering;
  return Due() < before;
}

bool RoundPacing::Held(Clock::time_point now) {
  if (state_ == State::kGathering || state_ == State::kUrgent) {
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
  if (state_ != State::kIdle && state_ != State::kExpecting) {
    last_own_ = now;
  }
  last_met_ = now;
  called_ = Clock::time_point::max();
  state_ = State::kIdle;
}

void RoundPacing::TakenUp(Clock::time_point now) {
  last_met_ = now;
  called_ = Clock::time_point::max();
  state_ = State::kExpecting;
}

bool RoundPacing::Called(Clock::time_point now) {
  if (state_ != State::kExpecting && state_ != State::kHeld) {
    return true;
  }
  called_ = std::min(called_, now);
  return now >= Due();
}

RoundPacing::Clock::time_point RoundPacing::Due() const {
  // Never later than an idle rank would come.
  const auto latest = last_met_ + idle_;
  switch (state_) {
    case State::kIdle:
      return latest;
    case State::kExpecting:
      return called_ == Clock::time_point::max() ? latest : std::min(called_ + kHold, latest);
    case State::kHeld:
      return std::min(called_ == Clock::time_point::max() ? last_held_ + kRest : std::max(called_, last_held_) + kHold,
                      latest);
    case State::kGathering:
      return std::min(last_own_ + cycle_, latest);
    case State::kUrgent:
      break;
  }
  return {};
}

}  // namespace paceline::core
