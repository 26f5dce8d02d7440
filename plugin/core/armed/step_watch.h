// When steps are so much alike that the next one needs one negotiation only.

#ifndef PACELINE_CORE_ARMED_STEP_WATCH_H
#define PACELINE_CORE_ARMED_STEP_WATCH_H

#include <cstdint>
#include <vector>

namespace paceline::core {

// A message that was performed after an ordinary negotiation.
struct WatchedMessage {
  int64_t key = 0;     // the same for messages that are alike in all: tensors, sizes, type, operation, factors
  int32_t group = -1;  // of the plan that is followed; negative: it is no part of that
  bool fits = false;   // an armed step can carry it
};

// Why steps are not armed at present.
enum class Unarmed : int32_t {
  kNothing = 0,           // they are
  kNoPlan = 1,            // there is no plan of several groups that all ranks follow and want to be armed
  kWatching = 2,          // too few equal steps have been seen
  kIncomplete = 3,        // a step without some group of the plan, or with one of them in parts
  kOrder = 4,             // groups of a step in another order than the plan's
  kBetween = 5,           // other operations between the groups of a step
  kUnequal = 6,           // steps that differ: in tensors, sizes, types, operations or factors
  kUnfit = 7,             // a message that an armed step cannot carry
  kTooManyFallbacks = 8,  // armed steps had to be given up too often
};
// What users read of it; empty: nothing.
const char* Words(Unarmed why);

// Every rank has one, and all of them see the same events in the same order: messages in the order in which they are
// performed, what the ranks found out together about an armed step, changes of the plan. So all are always in the same
// state, and no rank needs to ask.
//
//   state     event                                          next
//   off       a plan of two groups or more                   watching
//   watching  the first step is like those before            proved
//   watching  the kSteps-th step in a row that is equal      proved: the step that begins now goes as those before
//   proved    its last message, all as in those before       armed: from now on messages behind the first group's wait
//   proved    any other message of the plan                  watching
//   armed     the last message of the first group            running: the others are not negotiated
//   armed     any other message of the plan                  watching, one strike
//   running   all others have ended                          armed
//   running   a message of the plan was negotiated after all watching, one strike
//   running   it was given up                                watching, one strike
//   any       kMostStrikes strikes                           off
//   any       another plan, or none                          watching or off, no strikes
//
// A step is what is performed from a message of the plan's first group to the next one behind those of others. It is
// regular if it has all groups in the plan's order, one behind the other, nothing else between them, and nothing in it
// that an armed step cannot carry. A strike is forgiven for every kForgiving steps that went well.
class StepWatch {
 public:
  enum class State : uint8_t { kOff, kWatching, kProved, kArmed, kRunning };

  static const char* Words(State state);

  static constexpr int32_t kSteps = 2;
  static constexpr int32_t kMostStrikes = 3;
  static constexpr int32_t kForgiving = 100;

  // A plan of so many groups is followed from here on; 0: none that is to be armed. `before`: what step() was when
  // steps of a plan with the same groups were armed: the first step like that is proved as it begins.
  void Follow(int32_t groups, std::vector<WatchedMessage> before = {});
  void Performed(const WatchedMessage& message);
  // State running: the step's other messages have all ended, or it was given up.
  void Ended(bool complete);

  State state() const { return state_; }
  Unarmed why() const { return why_; }
  // Proved, armed or running: a step's messages, and how many of them are the first group's.
  const std::vector<WatchedMessage>& step() const { return last_; }
  int32_t first() const { return first_; }

 private:
  void Begin(const WatchedMessage& message);
  void Evaluate();
  Unarmed Judge() const;
  void Prove();
  void Irregular(Unarmed why);
  void Strike(Unarmed why);
  bool Follows() const;

  State state_ = State::kOff;
  Unarmed why_ = Unarmed::kNoPlan;
  int32_t groups_ = 0;
  std::vector<WatchedMessage> step_;  // the running one, from its first message
  bool other_ = false;                // something that is not the plan's came after its last message
  bool between_ = false;              // and another of the plan's behind that
  std::vector<WatchedMessage> last_;  // the last one
  int32_t equal_ = 0;                 // steps in a row like that
  int32_t first_ = 0;
  int32_t place_ = 0;  // armed: how many messages of the first group were performed
  int32_t strikes_ = 0, good_ = 0;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_ARMED_STEP_WATCH_H
