// The C entry point of armed steps, which plugin/fusion/report.py calls through ctypes.

#include <cstdint>

#include "bridge/armed/armed.h"
#include "bridge/c_boundary.h"
#include "bridge/participants.h"

extern "C" {

// out[0..5]: state and why not armed (core/armed/step_watch.h), why this rank last raised its flag
// (core/armed/armed_step.h), armed steps of this world, messages in them, armed steps that were given up.
void horovod_paceline_armed_status(int64_t* out) try {
  const auto& status = horovod::paceline::Get<horovod::paceline::Armed>().status();
  out[0] = status.state;
  out[1] = status.why;
  out[2] = status.attention;
  out[3] = status.steps;
  out[4] = status.messages;
  out[5] = status.given_up;
}
PACELINE_CATCH()
}
