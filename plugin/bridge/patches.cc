#include "bridge/patches.h"

#include "bridge/participants.h"
#include "bridge/waking.h"

namespace horovod::paceline {

void Initializing() {
  for (auto* participant : Participants()) {
    participant->BeginWorld();
  }
}

void NewProcessSet() { NotifyWorkSubmitted(); }

void EndProcessSet(int32_t process_set_id) {
  for (auto* participant : Participants()) {
    participant->EndProcessSet(process_set_id);
  }
}

}  // namespace horovod::paceline
