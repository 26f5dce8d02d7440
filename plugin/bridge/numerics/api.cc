// C entry points of the check for NaN and infinities (plugin/numerics.py).

#include <cstdint>

#include "bridge/c_boundary.h"
#include "bridge/numerics/numerics.h"
#include "bridge/participants.h"

using horovod::paceline::Get;
using horovod::paceline::Numerics;

extern "C" {

// Before init(): the mode, in the order of Numerics::Mode.
void horovod_paceline_check_numerics(int32_t mode) try { Get<Numerics>().Set(static_cast<Numerics::Mode>(mode)); }
PACELINE_CATCH()

// Tensors with NaN or infinities that this rank has submitted since the library was loaded.
int64_t horovod_paceline_non_finite() try { return Get<Numerics>().found(); }
PACELINE_CATCH(-1)
}
