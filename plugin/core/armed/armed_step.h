// One armed step on one rank: the next message to begin, and the fallback of all ranks to negotiation.

#ifndef PACELINE_CORE_ARMED_ARMED_STEP_H
#define PACELINE_CORE_ARMED_ARMED_STEP_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace paceline::core {

// Reason of this rank to fall back to negotiation.
enum class Attention : int32_t {
  kNone = 0,
  kMissing = 1,   // the next tensor was not submitted within the timeout
  kOther = 2,     // another operation waits, and the next tensor is not submitted
  kRepeated = 3,  // a tensor was submitted again before all other tensors of its step
  kChanged = 4,   // a tensor changed: shape, type, operation, factors or device
  kOffered = 5,   // a tensor of this step is in negotiation already
  kJoined = 6,    // this rank has joined
  kShutdown = 7,  // this rank shuts down
  kOthers = 8,    // another rank raised its flag
};
// Text for users; empty for kNone.
const char* Words(Attention why);

// Maximum number of messages in flight after the first group.
constexpr int32_t kTogether = 2;

// All ranks begin the same messages in the same order. Each message contains a flag in addition to its tensors; the sum
// has the flags of all ranks. If a flag is raised, no rank uses the values of the message. With at most `ahead`
// messages in flight, a rank may have begun ahead - 1 later messages when it receives a raised flag. All ranks begin
// exactly these messages, with their own flags raised or the flag of the first rank, and then no other message. So all
// ranks agree after the last of them: messages before the first raised flag are done on all ranks, later messages on
// none.
//
// States of a message:
//
//   state       event                                              next
//   waiting     its last tensor was submitted                      ready
//   waiting     attention is raised                                ready; its values are not used
//   ready       all messages before it have begun, and all but     in flight, with the flag
//               ahead - 1 of them have ended
//   in flight   it ended, and no flag is raised                    done
//   in flight   it ended, and a flag is raised                     void; attention is raised on this rank, too
//
// A step ends when all messages are done, or with the (ahead - 1)-th message after the first void message, or the last.
//
// A message may be in parts, each of which is sent as a message. All tensors were submitted when the first part begins.
// The flags of later parts repeat the flag of the first part; attention raised meanwhile applies from the next message
// on. So either all parts are done or none, and results may overwrite values as each part ends. One thread.
class ArmedStep {
 public:
  enum class Next : uint8_t { kWait, kBegin, kEnd };

  // `tensors`: number of tensors of each message; negative for a part after the first part of its message.
  ArmedStep(std::vector<int32_t> tensors, int32_t ahead);

  // A tensor of this message was submitted; of a message in parts, `message` is its first part.
  void Arrived(int32_t message) { --missing_[static_cast<std::size_t>(message)]; }
  // Raises attention. The first reason is kept.
  void Raise(Attention why) { attention_ = attention_ == Attention::kNone ? why : attention_; }

  Next next() const;
  // Number of begun messages, which is the number of the next message.
  int32_t begun() const { return begun_; }
  // Returns true if the next message lacks tensors; `lacking` returns their number.
  bool lacks() const { return lacking() > 0; }
  int32_t lacking() const { return begun_ < last_ ? std::max(missing_[static_cast<std::size_t>(begun_)], 0) : 0; }
  // Number of ended messages; messages from here to begun() are in flight.
  int32_t ended() const { return ended_; }
  // Flag of the next message.
  bool flag() const { return goes_on() ? carried_ : attention_ != Attention::kNone; }
  // Returns true if the next message is a part after the first part.
  bool goes_on() const { return begun_ < last_ && missing_[static_cast<std::size_t>(begun_)] < 0; }
  void Begin();
  // The oldest message in flight ended; `flagged`: a rank raised its flag. Returns true if its values are used.
  bool End(bool flagged);

  Attention attention() const { return attention_; }
  // Number of done messages, counted from the first message.
  int32_t done() const { return done_; }
  bool complete() const { return done_ == static_cast<int32_t>(missing_.size()); }

 private:
  std::vector<int32_t> missing_;  // tensors, by message; negative: a part
  const int32_t ahead_;
  Attention attention_ = Attention::kNone;
  bool carried_ = false;  // flag of the last whole message or first part
  int32_t begun_ = 0, ended_ = 0, done_ = 0;
  int32_t last_;  // number of messages until the end of the step
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_ARMED_ARMED_STEP_H
