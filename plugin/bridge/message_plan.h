// What a plan says about messages, for whoever makes messages of its own.

#ifndef PACELINE_BRIDGE_MESSAGE_PLAN_H
#define PACELINE_BRIDGE_MESSAGE_PLAN_H

#include <cstdint>
#include <string>

#include "core/fusion/active_plan.h"
#include "horovod/common/controller.h"

namespace horovod::paceline {

// What is followed: the same on all ranks once the messages of a round have ended.
struct Followed {
  int64_t number = 0;   // another one for every change
  int32_t groups = 0;   // of the plan; 0: none
  uint64_t digest = 0;  // of the groups
  int64_t timeout_ns = 0;
  bool armed = false;  // all ranks want armed steps
};

// Of the process set whose coordination round is running. Background thread.
class MessagePlan {
 public:
  MessagePlan() = default;
  MessagePlan(const MessagePlan&) = delete;
  MessagePlan& operator=(const MessagePlan&) = delete;
  MessagePlan(MessagePlan&&) = delete;
  MessagePlan& operator=(MessagePlan&&) = delete;
  virtual ~MessagePlan() = default;

  // Those that go together with a tensor, itself among them; null for one that goes alone.
  virtual const ::paceline::core::MergeGroup* GroupOf(const std::string& name) const = 0;
  // The number of a tensor's group in the plan's order; negative for one that goes alone.
  virtual int32_t GroupNumberOf(const std::string& name) const = 0;
  // In so many messages a tensor, alone in its group, goes in an armed step.
  virtual int32_t PartsOf(const std::string& name) const = 0;
  virtual Followed followed() const = 0;
  // How large a message may be: what the plan, or else Horovod, lets it hold. The same on all ranks whenever messages
  // are packed.
  virtual int64_t LimitBytes(common::Controller& controller) const = 0;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_MESSAGE_PLAN_H
