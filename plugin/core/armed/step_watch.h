// Comparison of steps: after equal steps the next step needs only one negotiation.

#ifndef PACELINE_CORE_ARMED_STEP_WATCH_H
#define PACELINE_CORE_ARMED_STEP_WATCH_H

#include <cstdint>
#include <vector>

namespace paceline::core {

// A message that was performed after negotiation.
struct WatchedMessage {
  int64_t key = 0;     // equal for messages with equal tensors, sizes, type, operation and factors
  int32_t group = -1;  // group of the active plan; negative: the message is not in the plan
  bool fits = false;   // an armed step can have it
};

// Reason why steps are not armed.
enum class Unarmed : int32_t {
  kNothing = 0,           // steps are armed
  kNoPlan = 1,            // no plan of several groups that all ranks follow and want armed
  kWatching = 2,          // too few equal steps have been seen
  kIncomplete = 3,        // a step without some group of the plan, or with one of them in parts
  kOrder = 4,             // groups of a step in another order than the plan's
  kBetween = 5,           // other operations between the groups of a step
  kUnequal = 6,           // steps that differ: in tensors, sizes, types, operations or factors
  kUnfit = 7,             // a message that an armed step cannot have
  kTooManyFallbacks = 8,  // armed steps were aborted too often
};
// Text for users; empty for kNothing.
const char* Words(Unarmed why);

// Each rank has a StepWatch. All receive the same events in the same order: performed messages, outcomes of armed steps
// on which the ranks agreed, changes of the plan. So all are always in the same state, without communication.
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
//   running   the step was aborted                           watching, one strike
//   any       kMostStrikes strikes                           off
//   any       another plan, or none                          watching or off, no strikes
//
// A step begins with a message of the plan's first group, and ends before the next such message after messages of other
// groups. A step is regular if it has all groups in the plan's order without other messages between them, and only
// messages that an armed step can have. kForgiving complete steps cancel one strike.
class StepWatch {
 public:
  enum class State : uint8_t { kOff, kWatching, kProved, kArmed, kRunning };

  static const char* Words(State state);

  static constexpr int32_t kSteps = 2;
  static constexpr int32_t kMostStrikes = 3;
  static constexpr int32_t kForgiving = 100;

  // Sets the number of groups of the active plan; 0: no plan for armed steps. `before`: step() of an earlier time when
  // steps of a plan with the same groups were armed; the first step that begins like it is proved.
  void Follow(int32_t groups, std::vector<WatchedMessage> before = {});
  void Performed(const WatchedMessage& message);
  // State running: all other messages of the step have ended (`complete`), or the step was aborted.
  void Ended(bool complete);

  State state() const { return state_; }
  Unarmed why() const { return why_; }
  // States proved, armed and running: messages of a step, and number of messages of the first group.
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
  std::vector<WatchedMessage> step_;  // messages of the current step, from the first message
  bool other_ = false;                // a message outside the plan followed the last message of the plan
  bool between_ = false;              // and a message of the plan followed it
  std::vector<WatchedMessage> last_;  // messages of the last step
  int32_t equal_ = 0;                 // steps in a row equal to the last step
  int32_t first_ = 0;
  int32_t place_ = 0;  // armed: number of performed messages of the first group
  int32_t strikes_ = 0, good_ = 0;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_ARMED_STEP_WATCH_H
