#include "core/failure/liveness_check.h"

namespace paceline::core {

uint32_t LivenessCheck::Begin(const std::set<int32_t>& called, Clock::time_point now) {
  state_ = State::kCalling;
  missing_ = called;
  all_here_ = called.empty();
  until_ = now + limit_;
  return ++number_;
}

void LivenessCheck::Here(int32_t rank, uint32_t number, Clock::time_point now) {
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

void LivenessCheck::AllHere(uint32_t number) {
  all_here_ = all_here_ || (state_ == State::kCounting && number == number_);
}

void LivenessCheck::Gone(int32_t rank) {
  missing_.erase(rank);
  all_here_ = missing_.empty();
}

LivenessCheck::Outcome LivenessCheck::Look(Clock::time_point now) {
  if (state_ == State::kIdle || (!all_here_ && now < until_)) {
    return Outcome::kNone;
  }
  state_ = State::kIdle;
  return all_here_ ? Outcome::kAllHere : Outcome::kMissing;
}

}  // namespace paceline::core
