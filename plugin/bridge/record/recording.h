// Records what happens in each training step, for traces and counters.

#ifndef PACELINE_BRIDGE_RECORD_RECORDING_H
#define PACELINE_BRIDGE_RECORD_RECORDING_H

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bridge/participant.h"
#include "core/record/operation_log.h"
#include "core/record/recorder.h"

namespace horovod::paceline {

class Recording : public Participant {
 public:
  ::paceline::core::Recorder& recorder() { return recorder_; }
  ::paceline::core::OperationLog& log() { return log_; }
  // The ranks of every process set that this rank is in.
  std::map<int32_t, std::vector<int>> ProcessSets();

  void BeginWorld() override;
  void EndProcessSet(int32_t process_set_id) override;
  ::paceline::core::Need Queued(const common::Request& request, int32_t process_set_id) override;
  void Arrived(const std::vector<std::shared_ptr<common::Tensor>>& tensors, const std::vector<std::string>& names,
               int32_t process_set_id) override;
  void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) override;
  void BeforeExecute(common::ProcessSet& process_set, const common::Response& response) override;
  void Performed(const Executed& executed) override;

 private:
  ::paceline::core::Recorder recorder_;
  ::paceline::core::OperationLog log_;
  int32_t process_set_id_ = 0;  // of this coordination round

  std::mutex mutex_;  // protects everything below
  std::map<int32_t, std::vector<int>> process_sets_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_RECORD_RECORDING_H
