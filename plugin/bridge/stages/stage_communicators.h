// Open communicators of this process.

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

// Open, Find and Close are called by C entry points, in framework threads.
class StageCommunicators : public Participant {
 public:
  // Creates a transport among the ranks of a process set, for a thread of its own; null if there is none.
  using MakeTransport = std::function<std::unique_ptr<Transport>(common::ProcessSet&)>;

  // Creates the handler of the world's end; `over` returns true after the end.
  using MakeEnd = std::function<WorldEnd(const std::function<bool()>& over)>;

  StageCommunicators(MakeTransport make, const MakeEnd& end);

  void BeginWorld() override;
  void AddOperations(common::HorovodGlobalState& state, std::vector<std::shared_ptr<common::AllreduceOp>>& allreduces,
                     std::vector<std::shared_ptr<common::BroadcastOp>>& broadcasts) override;

  // Returns the number of the communicator, or -1 with the reason in `error`: sentences with a problem and a remedy.
  int64_t Open(int32_t process_set_id, std::string& error);
  // Null if no communicator has this number.
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
