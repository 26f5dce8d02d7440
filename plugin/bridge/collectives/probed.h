// The network as `paceline probe` measured it, if the user named such a file.

#ifndef PACELINE_BRIDGE_COLLECTIVES_PROBED_H
#define PACELINE_BRIDGE_COLLECTIVES_PROBED_H

#include <cstdint>
#include <memory>

#include "core/collectives/measured_network.h"

namespace horovod::paceline {

using ProbedNetwork = std::shared_ptr<const ::paceline::core::MeasuredNetwork>;

// The process's, the same on all ranks; null where there is none. Any thread. A world begins without: Python hands one
// over when all ranks have shown that theirs is the same.
void Probe(ProbedNetwork network);
ProbedNetwork Probed();
// Of the process sets that hold as many ranks as were measured, so all of them; null for others.
ProbedNetwork ProbedAmong(int32_t ranks);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_PROBED_H
