// The communicators that are open in this process.

#ifndef PACELINE_BRIDGE_STAGES_STAGE_COMMUNICATORS_H
#define PACELINE_BRIDGE_STAGES_STAGE_COMMUNICATORS_H

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bridge/participant.h"
#include "bridge/stages/stage_communicator.h"
#include "bridge/transport.h"

namespace horovod::paceline {

// All that C entry points call: threads of frameworks.
class StageCommunicators : public Participant {
 public:
  // A transport for a thread of its own among the ranks of a process set; null where there is none.
  using MakeTransport = std::function<std::unique_ptr<Transport>(common::ProcessSet&)>;

  // How the world ends, given what says that it is over.
  using MakeEnd = std::function<WorldEnd(const std::function<bool()>& over)>;

  StageCommunicators(MakeTransport make, const MakeEnd& end);

  void BeginWorld() override;
  void AddOperations(common::HorovodGlobalState& state, std::vector<std::shared_ptr<common::AllreduceOp>>& allreduces,
                     std::vector<std::shared_ptr<common::BroadcastOp>>& broadcasts) override;

  // Its number; -1 and in `error` why not: a problem and a remedy, sentences.
  int64_t Open(int32_t process_set_id, std::string& error);
  // Null: there is no such communicator.
  std::shared_ptr<StageCommunicator> Find(int64_t number);
  void Close(int64_t number);

 private:
  std::shared_ptr<StageCommunicator> Make(int32_t process_set_id, std::string& error);
  bool Over() const;
  void Settle() const;

  const MakeTransport make_;
  WorldEnd end_;
  std::atomic<common::HorovodGlobalState*> state_{nullptr};  // Horovod has one, for ever
  std::mutex mutex_;                                         // protects what follows
  int64_t made_ = 0;
  std::map<int64_t, std::shared_ptr<StageCommunicator>> communicators_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_STAGES_STAGE_COMMUNICATORS_H
