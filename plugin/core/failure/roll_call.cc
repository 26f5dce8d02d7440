#include "core/failure/roll_call.h"

namespace paceline::core {

uint32_t RollCall::Begin(const std::set<int32_t>& called, Clock::time_point now) {
  state_ = State::kCalling;
  missing_ = called;
  all_here_ = called.empty();
  until_ = now + limit_;
  return ++number_;
}

void RollCall::Here(int32_t rank, uint32_t number, Clock::time_point now) {
  if (state_ != State::kCalling || number != number_) {
    return;
  }
  missing_.erase(rank);
  if (rank_0_) {
    all_here_ = missing_.empty();
  } else {
    state_ = State::kCounting;
    until_ = now + kCounts * limit_;
    missing_ = {rank};
  }
}

void RollCall::AllHere(uint32_t number) { all_here_ = all_here_ || (state_ == State::kCounting && number == number_); }

void RollCall::Gone(int32_t rank) {
  missing_.erase(rank);
  all_here_ = missing_.empty();
}

RollCall::Outcome RollCall::Look(Clock::time_point now) {
  if (state_ == State::kIdle || (!all_here_ && now < until_)) {
    return Outcome::kNone;
  }
  state_ = State::kIdle;
  return all_here_ ? Outcome::kAllHere : Outcome::kMissing;
}

}  // namespace paceline::core
