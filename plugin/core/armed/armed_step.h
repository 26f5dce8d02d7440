// One armed step on one rank: which message goes next, and when all go back to negotiating.

#ifndef PACELINE_CORE_ARMED_ARMED_STEP_H
#define PACELINE_CORE_ARMED_ARMED_STEP_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace paceline::core {

// Why this rank wants everybody to negotiate again.
enum class Attention : int32_t {
  kNone = 0,
  kMissing = 1,   // the next tensor did not come in time
  kOther = 2,     // another operation waits, and the next tensor does not come
  kRepeated = 3,  // a tensor came again before all others of its step had come
  kChanged = 4,   // a tensor is not what it was: shape, type, operation, factors, device
  kOffered = 5,   // a tensor of this step is being negotiated already
  kJoined = 6,    // this rank has joined
  kShutdown = 7,  // this rank shuts down
  kOthers = 8,    // another rank wanted it
};
// What users read of it; empty: nothing.
const char* Words(Attention why);

// Messages behind the first group that may be under way together.
constexpr int32_t kTogether = 2;

// All ranks begin the same messages in the same order. Each message carries a flag beside its tensors, and adds up the
// flags of all ranks: if any is raised, no rank uses its values. With at most `ahead` messages under way, a rank may
// have begun ahead - 1 others when it hears of a raised flag; all ranks begin just these, with their flags raised or
// the flag of the one who raised it first, and then none. So after the last of them all ranks know the same: messages
// before the first raised flag are done everywhere, those from there on nowhere.
//
// The states of a message, by number:
//
//   state       event                                              next
//   waiting     its last tensor was handed in                      ready
//   waiting     attention is raised                                ready; its values are of no use
//   ready       all before it have begun, and all but ahead - 1    travelling, with the flag
//               of them have ended
//   travelling  it ended, and no flag is raised                    done
//   travelling  it ended, and a flag is raised                     void; attention is raised here, too
//
// A step ends when all messages are done, or ahead - 1 behind the first void one, as far as there are.
//
// A message may be in parts, each of which travels as a message. Its tensors are there when the first part begins, and
// the flags of the others are what that one's was: what was raised meanwhile holds from the next message on. So either
// all parts are done, or none is, and results may be written over values as each part ends. One thread.
class ArmedStep {
 public:
  enum class Next : uint8_t { kWait, kBegin, kEnd };

  // `tensors`: how many each message has; below 0 for one that is a part behind the first part of its message.
  ArmedStep(std::vector<int32_t> tensors, int32_t ahead);

  // A tensor of this message, or of the one that begins with this part, was handed in.
  void Arrived(int32_t message) { --missing_[static_cast<std::size_t>(message)]; }
  // The first reason is kept.
  void Raise(Attention why) { attention_ = attention_ == Attention::kNone ? why : attention_; }

  Next next() const;
  // The message that goes next, or is waited for; those before have begun.
  int32_t begun() const { return begun_; }
  // Whether that one still lacks tensors.
  bool lacks() const { return lacking() > 0; }
  int32_t lacking() const { return begun_ < last_ ? std::max(missing_[static_cast<std::size_t>(begun_)], 0) : 0; }
  // Messages that have ended; those from here to begun() travel.
  int32_t ended() const { return ended_; }
  // Of the message that goes next.
  bool flag() const { return goes_on() ? carried_ : attention_ != Attention::kNone; }
  // Whether that is a part behind the first one.
  bool goes_on() const { return begun_ < last_ && missing_[static_cast<std::size_t>(begun_)] < 0; }
  void Begin();
  // The oldest message under way ended, with a flag raised by some rank or not. True: its values are to be used.
  bool End(bool flagged);

  Attention attention() const { return attention_; }
  // So many messages, from the first one, are done.
  int32_t done() const { return done_; }
  bool complete() const { return done_ == static_cast<int32_t>(missing_.size()); }

 private:
  std::vector<int32_t> missing_;  // tensors, by message; below 0: a part
  const int32_t ahead_;
  Attention attention_ = Attention::kNone;
  bool carried_ = false;  // the flag of the last message that is no part, or a first one
  int32_t begun_ = 0, ended_ = 0, done_ = 0;
  int32_t last_;  // the step ends behind so many messages
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_ARMED_ARMED_STEP_H
