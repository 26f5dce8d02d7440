#include "core/votes.h"

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

bool Votes::Called(const Rank& rank, bool blocked) {
  return rank.voted || (rank.arrived && blocked) || rank.standing == Standing::kFlushing;
}

bool Votes::closing() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.standing == Standing::kFlushing; });
}

std::vector<int32_t> Votes::Missing() const {
  std::vector<int32_t> missing;
  for (std::size_t number = 0; number < ranks_.size(); ++number) {
    if (!Called(ranks_[number])) {
      missing.push_back(static_cast<int32_t>(number));
    }
  }
  return missing;
}

int32_t Votes::Designated() const {
  const auto size = static_cast<int32_t>(ranks_.size());
  int32_t number = Initiator(rule_.seed, round_, size);
  while (!rank(number).voted && rank(number).standing != Standing::kPresent) {
    number = (number + 1) % size;  // ends: somebody voted
  }
  return number;
}

bool Votes::Suffices(const std::vector<bool>* blocked) const {
  const bool full = round_ == 0 || require_all_;
  int32_t votes = 0;
  bool all_called = true, lagging = false;
  for (std::size_t number = 0; number < ranks_.size(); ++number) {
    const Rank& rank = ranks_[number];
    votes += rank.voted ? 1 : 0;
    const bool present = rank.standing == Standing::kPresent;
    if (!Called(rank, blocked != nullptr && (*blocked)[number])) {
      all_called = all_called && !full && !present;
      lagging = lagging || (present && rule_.max_lag > 0 && round_ - rank.seen >= rule_.max_lag);
    }
  }
  if (votes == 0) {
    return closing();
  }
  if (all_called || full || lagging) {
    return all_called;
  }
  return rule_.count == 0 ? rank(Designated()).voted : votes >= rule_.count;
}

Votes::Tally Votes::Settle(const std::vector<bool>& blocked) { return Count(&blocked); }

Votes::Tally Votes::Count(const std::vector<bool>* blocked) {
  if (ready_ || !Suffices(blocked)) {
    return Tally::kCounted;
  }
  ready_ = true;
  return Tally::kReady;
}

Votes::Tally Votes::Vote(int32_t rank) {
  Rank& voter = ranks_[static_cast<std::size_t>(rank)];
  if (voter.voted || voter.standing == Standing::kFlushing) {
    return Tally::kDefect;
  }
  voter.voted = true;
  return Count();
}

Votes::Tally Votes::Arrived(int32_t rank, int64_t round) {
  Rank& late = ranks_[static_cast<std::size_t>(rank)];
  if (late.voted || late.standing == Standing::kFlushing) {
    return Tally::kDefect;
  }
  late.seen = std::max(late.seen, round);
  late.arrived = late.arrived || round == round_;
  return Count();
}

Votes::Tally Votes::Absent(int32_t rank) {
  Rank& gone = ranks_[static_cast<std::size_t>(rank)];
  if (gone.standing == Standing::kFlushing) {
    return Tally::kDefect;
  }
  gone.standing = Standing::kAbsent;
  return Count();
}

void Votes::Present(int32_t rank) {
  Rank& back = ranks_[static_cast<std::size_t>(rank)];
  if (back.standing == Standing::kAbsent) {
    back.standing = Standing::kPresent;
  }
}

Votes::Tally Votes::Flush(int32_t rank) {
  Rank& flushing = ranks_[static_cast<std::size_t>(rank)];
  if (flushing.voted || flushing.standing == Standing::kFlushing) {
    return Tally::kDefect;
  }
  flushing.standing = Standing::kFlushing;
  return Count();
}

void Votes::Executed() {
  assert(ready_);
  const bool closed = closing();
  ++round_;
  for (Rank& rank : ranks_) {
    if (rank.voted || closed) {
      rank.seen = round_;
    }
    if (closed) {
      rank.standing = Standing::kPresent;
    }
    rank.voted = rank.arrived = false;
  }
  ready_ = require_all_ = false;
}

}  // namespace paceline::core
