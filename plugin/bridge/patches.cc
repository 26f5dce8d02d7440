#include "bridge/patches.h"

#include "bridge/participants.h"

namespace horovod::paceline {

void Initializing() {
  for (auto* participant : Participants()) {
    participant->BeginWorld();
  }
}

void NewProcessSet(int32_t process_set_id) {
  for (auto* participant : Participants()) {
    participant->NewProcessSet(process_set_id);
  }
}

}  // namespace horovod::paceline
