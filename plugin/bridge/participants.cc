#include "bridge/participants.h"

#include <algorithm>
#include <functional>
#include <map>

#include "bridge/armed/armed.h"
#include "bridge/collectives/collectives.h"
#include "bridge/coordination/coordination.h"
#include "bridge/exchanges.h"
#include "bridge/failure/failure.h"
#include "bridge/fusion/fusion_buffers.h"
#include "bridge/fusion/merging.h"
#include "bridge/joins.h"
#include "bridge/leaving/leaving.h"
#include "bridge/naming/naming.h"
#include "bridge/numerics/numerics.h"
#include "bridge/partial/partial.h"
#include "bridge/pipelined/pipelined.h"
#include "bridge/priorities.h"
#include "bridge/process_sets_change.h"
#include "bridge/record/recording.h"
#include "bridge/settings/settings.h"
#include "bridge/stages/stage_communicators.h"
#include "bridge/transport/gloo_transport.h"
#include "bridge/transport/mpi_transport.h"
#include "horovod/common/gloo/gloo_context.h"
#include "horovod/common/utils/env_parser.h"

namespace horovod::paceline {

namespace {

// What Horovod's controller uses, so the same on all ranks: it gives a process set a Gloo context or a communicator.
std::unique_ptr<Transport> TransportAmong(common::ProcessSet& process_set) {
  if (const auto& context = process_set.gloo_context.ctx) {
    return std::make_unique<GlooTransport>(context, GlooTransport::Kind::kCollectives);
  }
#if HAVE_MPI
  if (const auto comm = process_set.mpi_context.GetMPICommunicator(common::Communicator::GLOBAL);
      comm != MPI_COMM_NULL) {
    // Horovod waits for MPI without a limit; its limit for Gloo, and that one's default, hold for us here, too.
    return std::make_unique<MpiTransport>(
        comm, std::chrono::seconds(common::GetIntEnvOrDefault(HOROVOD_GLOO_TIMEOUT_SECONDS, 30)));
  }
#endif
  return nullptr;
}

// MPI has none: its calls belong to Horovod's background thread.
std::unique_ptr<Transport> StageTransportAmong(common::ProcessSet& process_set) {
  const auto& context = process_set.gloo_context.ctx;
  return context == nullptr ? nullptr : std::make_unique<GlooTransport>(context, GlooTransport::Kind::kStages);
}

Coordination::Transports OfCoordination() {
  using Kind = GlooTransport::Kind;
  return {[](const auto& context, auto ring) {
            return std::make_unique<GlooTransport>(context, Kind::kRounds, std::move(ring));
          },
          [](const auto& context) { return std::make_unique<GlooTransport>(context, Kind::kControlMessages); }};
}

WorldEnd EndOfWorld(const std::function<bool()>& over = nullptr) {
  WorldEnd end;
  end.over = over;
  end.why = WhyFailed;
  end.others = [over](const std::exception& error) { return ExplainEnd(error, over); };
  end.here = [](const std::exception& error) {
    Fail(error);
    return WhyFailed();
  };
  return end;
}

std::vector<Participant*> Make() {
  // What one needs of another. Armed steps are not for partial tensors, and merging holds none of these back: their
  // rounds wait for each other on the coordinator, which alone knows when one is ready.
  const auto partial = std::make_shared<Partial*>(nullptr);
  const auto special = [partial](int32_t process_set_id, const std::string& name) {
    return (*partial)->Find(process_set_id, name) != nullptr;
  };
  auto* collectives = new Collectives(TransportAmong, EndOfWorld());
  auto* merging = new Merging(special, *collectives);
  auto* operations = new Operations;
  *partial = new Partial(*operations, *merging);
  auto* pipelined = new Pipelined(*operations, *merging, special);
  auto* leaving = new Leaving([partial] { return (*partial)->Updates(); },
                              [partial](const std::string& name) { return (*partial)->Find(0, name) != nullptr; });
  const std::map<Priority, Participant*> by_priority = {
      {Priority::kFailure, new Failure},
      {Priority::kSettings, new Settings(FailTogether)},
      {Priority::kNaming, new Naming},
      {Priority::kCoordination, new Coordination(OfCoordination(), SleepLimitOfAll)},
      {Priority::kProcessSetsWatch, new ProcessSetsWatch},
      {Priority::kNumerics, new Numerics},
      {Priority::kExchanges, new Exchanges(*operations, {pipelined, *partial})},
      {Priority::kPipelined, pipelined},
      {Priority::kLeaving, leaving},
      {Priority::kPartial, *partial},
      {Priority::kArmed, new Armed(*merging, *collectives, special, WhyFailed, NotifyTakenUp)},
      {Priority::kMerging, merging},
      {Priority::kJoins, new Joins(special)},
      {Priority::kFusionBuffers, new FusionBuffers},
      {Priority::kRecording, new Recording},
      {Priority::kCollectives, collectives},
      {Priority::kStageCommunicators, new StageCommunicators(StageTransportAmong, EndOfWorld)},
  };
  std::vector<Participant*> all;
  all.reserve(by_priority.size());
  for (const auto& [priority, participant] : by_priority) {
    all.push_back(participant);
  }
  return all;
}

}  // namespace

const std::vector<Participant*>& Participants() {
  static const auto* all = new std::vector<Participant*>(Make());
  return *all;
}

void NotifyArrived(const std::vector<std::shared_ptr<common::Tensor>>& tensors, const std::vector<std::string>& names,
                   int32_t process_set_id) {
  for (auto* participant : Participants()) {
    participant->Arrived(tensors, names, process_set_id);
  }
}

void NotifyTakenUp() {
  for (auto* participant : Participants()) {
    participant->TakenUp();
  }
}

Clock::duration SleepLimitOfAll() {
  auto limit = Clock::duration::max();
  for (auto* participant : Participants()) {
    limit = std::min(limit, participant->SleepLimit());
  }
  return limit;
}

void NotifyPerformed(const Executed& executed) {
  for (auto* participant : Participants()) {
    participant->Performed(executed);
  }
}

}  // namespace horovod::paceline
