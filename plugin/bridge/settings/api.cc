// C entry points: this rank's settings, and the report of those that differ between ranks.

#include <cstdint>

#include "bridge/c_boundary.h"
#include "bridge/copy_text.h"
#include "bridge/participants.h"
#include "bridge/settings/settings.h"

using horovod::paceline::Get;
using horovod::paceline::Settings;

extern "C" {

// Before init(): the settings that all ranks must have in common (core/settings/comparison.h).
void horovod_paceline_settings(const char* text) try { Get<Settings>().Set(text); }
PACELINE_CATCH()

// After an init() that failed: the settings that differ, empty if they are not the reason.
void horovod_paceline_settings_report(char* report, int64_t capacity) try {
  horovod::paceline::CopyText(Get<Settings>().Report(), report, capacity);
}
PACELINE_CATCH()
}
