// The C entry points that are about all of the bridge; each room has its own in an api.cc. Python calls them through
// ctypes (plugin/native/prototypes.py). Their names contain "horovod" because Horovod's linker script hides every other
// symbol.

#include <algorithm>
#include <cstdint>

#include "bridge/agree.h"
#include "bridge/c_boundary.h"
#include "bridge/copy_text.h"
#include "core/interface.h"

extern "C" {

int32_t horovod_paceline_interface() { return paceline::core::kInterface; }

// Why the last entry point that this thread called failed with an exception; empty if it did not. Asked once.
void horovod_paceline_take_error(char* error, int64_t capacity) { horovod::paceline::TakeError(error, capacity); }

// Waits, at most `limit_s`, for all ranks of the process set that have not joined to call this under the same name;
// `least` and `most` are then the smallest and the largest of their `values`, each below 2^52 in amount. Returns 0, or
// -1 and in `error` why not.
int32_t horovod_paceline_agree_min_max(int32_t process_set, const char* name, int32_t count, const int64_t* values,
                                       int64_t* least, int64_t* most, double limit_s, char* error,
                                       int64_t capacity) try {
  const auto agreed = horovod::paceline::AgreeMinMax(name, process_set, {values, values + count}, limit_s);
  if (!agreed.status.ok()) {
    horovod::paceline::CopyText(agreed.status.reason(), error, capacity);
    return -1;
  }
  std::copy(agreed.least.begin(), agreed.least.end(), least);
  std::copy(agreed.most.begin(), agreed.most.end(), most);
  return 0;
}
PACELINE_CATCH(-1, error, capacity)
}
