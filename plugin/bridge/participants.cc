#include "bridge/participants.h"

#include "bridge/collectives/collectives.h"
#include "bridge/exchanges.h"
#include "bridge/failure/failure.h"
#include "bridge/fusion/fusion_buffers.h"
#include "bridge/fusion/merging.h"
#include "bridge/naming/naming.h"
#include "bridge/partial/partial.h"
#include "bridge/pipelined/pipelined.h"
#include "bridge/record/recording.h"
#include "bridge/transport/gloo_transport.h"

namespace horovod::paceline {

namespace {

std::unique_ptr<Transport> TransportAmong(common::ProcessSet& process_set) {
  const auto& context = process_set.gloo_context.ctx;
  return context == nullptr ? nullptr : std::make_unique<GlooTransport>(context);
}

std::vector<Participant*> Make() {
  // What one needs of another. Merging holds no partial tensors back: their rounds wait for each other on the
  // coordinator, which alone knows when one is ready.
  const auto partial = std::make_shared<Partial*>(nullptr);
  auto* merging = new Merging([partial](int32_t process_set_id, const std::string& name) {
    return (*partial)->Find(process_set_id, name) != nullptr;
  });
  *partial = new Partial(*merging);
  auto* pipelined = new Pipelined;
  return {
      new Failure,
      new Naming,
      new Exchanges({pipelined, *partial}),
      pipelined,
      *partial,  // drops stale votes before they are held back, and packs its messages before the plan's
      merging,
      new FusionBuffers,
      new Recording,
      new Collectives(TransportAmong),
  };
}

}  // namespace

const std::vector<Participant*>& Participants() {
  static const auto* all = new std::vector<Participant*>(Make());
  return *all;
}

void TellArrived(const std::vector<std::shared_ptr<common::Tensor>>& tensors, const std::vector<std::string>& names,
                 int32_t process_set_id) {
  for (auto* participant : Participants()) {
    participant->Arrived(tensors, names, process_set_id);
  }
}

void TellPerformed(const Executed& executed) {
  for (auto* participant : Participants()) {
    participant->Performed(executed);
  }
}

}  // namespace horovod::paceline
