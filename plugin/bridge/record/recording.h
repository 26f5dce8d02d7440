// Records what happens in each training step, for traces and counters.

#ifndef PACELINE_BRIDGE_RECORD_RECORDING_H
#define PACELINE_BRIDGE_RECORD_RECORDING_H

#include <memory>
#include <string>
#include <vector>

#include "bridge/participant.h"
#include "core/record/recorder.h"

namespace horovod::paceline {

class Recording : public Participant {
 public:
  ::paceline::core::Recorder& recorder() { return recorder_; }

  void Arrived(const std::vector<std::shared_ptr<common::Tensor>>& tensors, const std::vector<std::string>& names,
               int32_t process_set_id) override;
  void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) override;
  void Performed(const Executed& executed) override;

 private:
  ::paceline::core::Recorder recorder_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_RECORD_RECORDING_H
