#include "core/partial/votes.h"

#include <algorithm>
#include <cassert>

namespace paceline::core {

namespace {

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15;  // SplitMix64's step from state to state

// SplitMix64's output for a state.
uint64_t Mix(uint64_t state) {
  state = (state ^ (state >> 30U)) * 0xBF58476D1CE4E5B9;
  state = (state ^ (state >> 27U)) * 0x94D049BB133111EB;
  return state ^ (state >> 31U);
}

}  // namespace

int32_t Initiator(uint64_t seed, int64_t round, int32_t size) {
  const auto ranks = static_cast<uint64_t>(size);
  const uint64_t excess = (UINT64_MAX % ranks + 1) % ranks;  // 2^64 modulo ranks
  uint64_t drawn = Mix(seed + (static_cast<uint64_t>(round) + 1) * kGamma);
  while (drawn > UINT64_MAX - excess) {
    drawn = Mix(drawn + kGamma);
  }
  return static_cast<int32_t>(drawn % ranks);
}

int32_t Votes::Designated(const Attendance& attendance) const {
  const auto size = static_cast<int32_t>(ranks_.size());
  int32_t number = Initiator(rule_.seed, round_, size);
  while (!rank(number).voted && (rank(number).flushing || !attendance.Expects(static_cast<std::size_t>(number)))) {
    number = (number + 1) % size;  // ends: somebody voted
  }
  return number;
}

bool Votes::Suffices(const Attendance& attendance) const {
  if (voted_ == 0) {
    return closing();
  }
  bool all_called = true, lagging = false;
  for (std::size_t number = 0; number < ranks_.size(); ++number) {
    const Rank& rank = ranks_[number];
    if (rank.voted || rank.flushing || (rank.arrived && attendance.blocked[number])) {
      continue;
    }
    const bool present = attendance.Expects(number);
    all_called = all_called && round_ != 0 && !present;
    lagging = lagging || (present && rule_.max_lag > 0 && round_ - rank.seen >= rule_.max_lag);
  }
  if (all_called || round_ == 0 || lagging) {
    return all_called;
  }
  return rule_.count == 0 ? rank(Designated(attendance)).voted : voted_ >= static_cast<std::size_t>(rule_.count);
}

bool Votes::Settle(const Attendance& attendance) {
  if (ready_ || !Suffices(attendance)) {
    return false;
  }
  ready_ = true;
  return true;
}

bool Votes::Vote(int32_t rank) {
  Rank& voter = ranks_[static_cast<std::size_t>(rank)];
  if (voter.voted || voter.flushing) {
    return false;
  }
  voter.voted = true;
  ++voted_;
  return true;
}

bool Votes::Arrived(int32_t rank, int64_t round) {
  Rank& late = ranks_[static_cast<std::size_t>(rank)];
  if (late.voted || late.flushing) {
    return false;
  }
  late.seen = std::max(late.seen, round);
  late.arrived = late.arrived || round == round_;
  return true;
}

bool Votes::Flush(int32_t rank) {
  Rank& flushing = ranks_[static_cast<std::size_t>(rank)];
  if (flushing.voted || flushing.flushing) {
    return false;
  }
  flushing.flushing = true;
  ++flushing_;
  return true;
}

void Votes::Executed() {
  assert(ready_);
  const bool closed = closing();
  ++round_;
  for (Rank& rank : ranks_) {
    if (rank.voted || closed) {
      rank.seen = round_;
    }
    rank.flushing = rank.flushing && !closed;
    rank.voted = rank.arrived = false;
  }
  voted_ = 0;
  flushing_ = closed ? 0 : flushing_;
  ready_ = false;
}

}  // namespace paceline::core
