// The network as `paceline probe` measured it, if the user named such a file.

#ifndef PACELINE_BRIDGE_COLLECTIVES_PROBED_H
#define PACELINE_BRIDGE_COLLECTIVES_PROBED_H

#include <cstdint>
#include <memory>

#include "core/collectives/measured_network.h"

namespace horovod::paceline {

using ProbedNetwork = std::shared_ptr<const ::paceline::core::MeasuredNetwork>;

// What this process has read; null where there is none. Any thread. Collectives go by it when all ranks have agreed to,
// by an operation of this name (Collectives::AfterExecute): ranks read it at times of their own.
void Probe(ProbedNetwork network);
ProbedNetwork Probed();
inline constexpr const char* kNetworkAgreement = "paceline.network.follow";

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_PROBED_H
