// What ranks tell each other beside the data, before a message or after it: a few numbers, over the same transport.

#ifndef PACELINE_BRIDGE_COLLECTIVES_MEETING_H
#define PACELINE_BRIDGE_COLLECTIVES_MEETING_H

#include <cstdint>
#include <vector>

#include "bridge/collectives/choice.h"
#include "bridge/transport.h"
#include "core/collectives/collective_time.h"

namespace horovod::paceline {

// All ranks come, in the same order. No message of the engine is under way. All throw std::runtime_error when a rank is
// lost or does not come within the transport's limit; nothing is under way then.

// Number by number, over the ranks; equally many on each.
struct Extremes {
  std::vector<double> least, most;
};
Extremes Compare(Transport& transport, const std::vector<double>& own);

// Throws std::runtime_error where ranks have chosen differently: what, where, and the remedy.
void CheckSame(Transport& transport, const CollectiveChoice& choice);

// Measured between neighbours, all at once; the slowest of them, the same on all ranks. Takes some round trips and the
// time of 1 MiB.
::paceline::core::Network Measure(Transport& transport);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_MEETING_H
