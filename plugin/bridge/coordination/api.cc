// C entry points: what users choose of coordination.

#include <cstdint>

#include "bridge/c_boundary.h"
#include "bridge/coordination/coordination.h"
#include "bridge/participants.h"

extern "C" {

// Before init(), the same on all ranks: whether the background thread sleeps until something happens, instead of for
// the rest of its cycle.
void horovod_paceline_wake(int32_t events) try {
  horovod::paceline::Get<horovod::paceline::Coordination>().Want(events != 0);
}
PACELINE_CATCH()
}
