// The C entry point of armed steps, which plugin/fusion/report.py calls through ctypes.

#include "bridge/armed/armed.h"
#include "bridge/c_boundary.h"
#include "bridge/json_text.h"
#include "bridge/participants.h"

extern "C" {

// As ArmedReport of plugin/fusion/armed.py; the last three are of this world.
const char* horovod_paceline_armed_status() try {
  const auto& status = horovod::paceline::Get<horovod::paceline::Armed>().status();
  const auto why = status.why.load();
  return horovod::paceline::JsonText(paceline::core::Json()
                                         .Put("state", paceline::core::StepWatch::Words(status.state))
                                         .Put("reason", paceline::core::Words(why))
                                         .Put("too_many_fallbacks", why == paceline::core::Unarmed::kTooManyFallbacks)
                                         .Put("fallback_reason", paceline::core::Words(status.attention.load()))
                                         .Put("steps", status.steps.load())
                                         .Put("messages", status.messages.load())
                                         .Put("fallbacks", status.fallbacks.load()));
}
PACELINE_CATCH(nullptr)
}
