#include "core/armed/step_watch.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace paceline::core {

const char* Words(Unarmed why) {
  switch (why) {
    case Unarmed::kNothing:
      return "";
    case Unarmed::kNoPlan:
      return "no plan of several messages is followed, or not all ranks ask for armed steps (PACELINE_FUSION=optimal)";
    case Unarmed::kWatching:
      return "too few equal steps have been seen";
    case Unarmed::kIncomplete:
      return "a step was without some group of the plan, or had one in parts";
    case Unarmed::kOrder:
      return "groups of a step came in another order than the plan's";
    case Unarmed::kBetween:
      return "other operations came between the groups of a step";
    case Unarmed::kUnequal:
      return "steps differed, in gradients, sizes, types or operations";
    case Unarmed::kUnfit:
      return "a message cannot go without negotiation: not a sum of floating-point numbers in CPU memory, or one with "
             "a codec";
    case Unarmed::kTooManyFallbacks:
      return "armed steps were aborted too often";
  }
  return "";
}

const char* StepWatch::Words(State state) {
  constexpr std::array<const char*, 5> kWords = {"off", "watching", "proved", "armed", "running"};
  return kWords[static_cast<size_t>(state)];
}

void StepWatch::Follow(int32_t groups, std::vector<WatchedMessage> before) {
  groups_ = groups;
  state_ = groups >= 2 ? State::kWatching : State::kOff;
  why_ = groups >= 2 ? Unarmed::kWatching : Unarmed::kNoPlan;
  step_.clear();
  last_ = std::move(before);
  equal_ = last_.empty() ? 0 : kSteps;
  first_ = place_ = strikes_ = good_ = 0;
}

void StepWatch::Prove() {
  state_ = State::kProved;
  first_ = static_cast<int32_t>(
      std::count_if(last_.begin(), last_.end(), [](const auto& message) { return message.group == 0; }));
}

void StepWatch::Begin(const WatchedMessage& message) {
  step_.assign(1, message);
  other_ = between_ = false;
}

Unarmed StepWatch::Judge() const {
  int32_t group = 0;
  for (const auto& message : step_) {
    if (!message.fits) {
      return Unarmed::kUnfit;
    }
    if (message.group < group) {
      return Unarmed::kOrder;
    }
    if (message.group > group + 1) {
      return Unarmed::kIncomplete;
    }
    group = message.group;
  }
  if (group != groups_ - 1) {
    return Unarmed::kIncomplete;
  }
  return between_ ? Unarmed::kBetween : Unarmed::kNothing;
}

bool StepWatch::Follows() const {
  return !between_ && step_.size() <= last_.size() &&
         std::equal(step_.begin(), step_.end(), last_.begin(),
                    [](const auto& one, const auto& other) { return one.key == other.key; });
}

void StepWatch::Irregular(Unarmed why) {
  state_ = State::kWatching;
  why_ = why;
  equal_ = 0;
}

void StepWatch::Strike(Unarmed why) {
  Irregular(why);
  step_.clear();
  place_ = 0;
  good_ = 0;
  if (++strikes_ == kMostStrikes) {
    state_ = State::kOff;
    why_ = Unarmed::kTooManyFallbacks;
  }
}

// The running step is over.
void StepWatch::Evaluate() {
  const auto why = Judge();
  if (why != Unarmed::kNothing) {
    Irregular(why);
    return;
  }
  if (equal_ > 0 && step_.size() == last_.size() && Follows()) {
    ++equal_;
  } else {
    why_ = last_.empty() || (step_.size() == last_.size() && Follows()) ? Unarmed::kWatching : Unarmed::kUnequal;
    last_ = step_;
    equal_ = 1;
  }
  if (equal_ >= kSteps) {
    Prove();
  }
}

void StepWatch::Performed(const WatchedMessage& message) {
  if (state_ == State::kOff) {
    return;
  }
  if (message.group < 0) {
    other_ = true;
    return;
  }
  if (state_ == State::kArmed) {
    if (message.key != last_[static_cast<size_t>(place_)].key) {
      Strike(Unarmed::kUnequal);
    } else if (++place_ == first_) {
      state_ = State::kRunning;
      place_ = 0;
    }
    return;
  }
  if (state_ == State::kRunning) {
    Strike(Unarmed::kOrder);
    return;
  }
  const bool again = !step_.empty() && message.key == step_[0].key;
  if (message.group == 0 && (step_.empty() || step_.back().group > 0 || again)) {
    if (!step_.empty()) {
      Evaluate();
    }
    Begin(message);
    if (state_ == State::kWatching && equal_ >= kSteps) {
      Prove();
    }
  } else if (!step_.empty()) {
    between_ = between_ || other_;
    step_.push_back(message);
  } else {
    return;  // watching began within a step
  }
  if (state_ != State::kProved) {
    return;
  }
  if (!Follows()) {
    Irregular(between_ ? Unarmed::kBetween : Unarmed::kUnequal);
  } else if (step_.size() == last_.size()) {
    state_ = State::kArmed;
    why_ = Unarmed::kNothing;
    place_ = 0;
    step_.clear();
  }
}

void StepWatch::Ended(bool complete) {
  if (!complete) {
    Strike(Unarmed::kWatching);
    return;
  }
  state_ = State::kArmed;
  if (strikes_ > 0 && ++good_ == kForgiving) {
    --strikes_;
    good_ = 0;
  }
}

}  // namespace paceline::core
