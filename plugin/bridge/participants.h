// All that takes part in Horovod's work inside one of its libraries. PyTorch's and TensorFlow's each have their own.

#ifndef PACELINE_BRIDGE_PARTICIPANTS_H
#define PACELINE_BRIDGE_PARTICIPANTS_H

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bridge/participant.h"

namespace horovod::paceline {

// In the order in which hooks ask them (priorities.h). Never destroyed: Horovod's background thread may outlive static
// destructors.
const std::vector<Participant*>& Participants();

// The one of class T, for the C entry points of its own room.
template <typename T>
T& Get() {
  for (auto* participant : Participants()) {
    if (auto* found = dynamic_cast<T*>(participant)) {
      return *found;
    }
  }
  throw std::logic_error("no such participant");
}

// Tells all of them; see Participant::Arrived. For calls that were taken over, by the one that did.
void NotifyArrived(const std::vector<std::shared_ptr<common::Tensor>>& tensors, const std::vector<std::string>& names,
                   int32_t process_set_id);

// Tells all of them; see Participant::TakenUp. For what goes without coordination rounds.
void NotifyTakenUp();

// How long the background thread may sleep at most, by all of them; see Participant::SleepLimit.
Clock::duration SleepLimitOfAll();

// Tells all of them; see Participant::Performed. For operations that go on after Horovod's call has returned.
void NotifyPerformed(const Executed& executed);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PARTICIPANTS_H
