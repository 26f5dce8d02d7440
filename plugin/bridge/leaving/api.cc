// The C entry points of a rank that leaves, which plugin/leaving calls through ctypes.

#include <cstdint>
#include <vector>

#include "bridge/c_boundary.h"
#include "bridge/leaving/leaving.h"
#include "bridge/participants.h"

using horovod::paceline::Get;
using horovod::paceline::Leaving;
using horovod::paceline::Standing;

extern "C" {

// Asks how all ranks stand; the number of the question. `through`: from here on this rank is through.
int64_t horovod_paceline_leaving_ask(int32_t through) try {
  auto& leaving = Get<Leaving>();
  if (through != 0) {
    leaving.Through();
  }
  return leaving.Ask();
}
PACELINE_CATCH(-1)

// The number of this rank's last question that was answered, or 0; -1 if the world has ended. How all ranks stood then,
// or when another rank asked since: three numbers each, whether it is through, whether it waits for an operation of all
// ranks, and its updates with a partial exchange. At most `ranks` ranks are written.
int64_t horovod_paceline_leaving_heard(int64_t* out, int32_t ranks) try {
  std::vector<Standing> all;
  const auto& leaving = Get<Leaving>();
  const auto number = leaving.Heard(all);
  for (size_t rank = 0; rank < all.size() && rank < static_cast<size_t>(ranks); ++rank) {
    *out++ = all[rank].through ? 1 : 0;
    *out++ = all[rank].waits ? 1 : 0;
    *out++ = all[rank].updates;
  }
  return leaving.ended() ? -1 : number;
}
PACELINE_CATCH(-1)
}
