#include "core/partial/round_state.h"

#include <algorithm>
#include <cassert>

namespace paceline::core {

void RoundState::CountCall(int64_t lag) {
  ++(lag == 0 ? counters_.on_time : counters_.late);
  ++counters_.lags[std::min(static_cast<std::size_t>(lag), Counters::kLags - 1)];
}

RoundState::Reply RoundState::Call() {
  assert(!waiting());
  ++pending_;
  if (missed() > 0 && executed_ > 0) {
    CountCall(missed());
    answered_ = executed_;
    return {Reply::Kind::kAnswered, answered_};
  }
  if (begun_ > executed_) {
    phase_ = Phase::kLate;
    CountCall(1);
    return {Reply::Kind::kWait, executed_ + 1};
  }
  phase_ = Phase::kVoted;
  CountCall(0);  // the next round to begin takes it along, whoever makes that round
  return {Reply::Kind::kVote, executed_};
}

void RoundState::Flush() {
  assert(!waiting());
  phase_ = Phase::kFlushing;
}

RoundState::Departure RoundState::Begin() {
  Departure departure;
  departure.fresh = phase_ == Phase::kVoted;
  departure.flushing = phase_ == Phase::kFlushing;
  departure.carried = pending_ - (departure.fresh ? 1 : 0);
  pending_ = 0;
  ++begun_;
  counters_.carried += departure.carried;
  if (departure.fresh) {
    phase_ = Phase::kFresh;
  } else if (!departure.flushing) {
    ++counters_.missed;
  }
  return departure;
}

int64_t RoundState::End(bool closing) {
  assert(begun_ > executed_);
  ++executed_;
  ++counters_.rounds;
  const bool answers = phase_ == Phase::kFresh || phase_ == Phase::kLate || (phase_ == Phase::kFlushing && closing);
  if (!answers) {
    return 0;
  }
  phase_ = Phase::kIdle;
  const int64_t rounds = missed();
  answered_ = executed_;
  return rounds;
}

void RoundState::Restore(int64_t pending, int64_t missed) {
  assert(!waiting() && begun_ == executed_);
  pending_ = pending;
  answered_ = executed_ - missed;
}

bool RoundState::Fail() {
  const bool waited = waiting();
  phase_ = Phase::kIdle;
  answered_ = executed_ = begun_ = pending_ = 0;
  return waited;
}

}  // namespace paceline::core
