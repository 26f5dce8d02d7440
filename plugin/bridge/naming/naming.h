// Names of operations that their caller did not name.

#ifndef PACELINE_BRIDGE_NAMING_NAMING_H
#define PACELINE_BRIDGE_NAMING_NAMING_H

#include "bridge/participant.h"
#include "core/naming/automatic_names.h"

namespace horovod::paceline {

// The hooks say when all ranks of a set have met.
class Naming : public Participant {
 public:
  // Any thread.
  ::paceline::core::AutomaticNames& names() { return names_; }

  void BeginWorld() override { names_.Reset(); }
  void EndProcessSet(int32_t process_set_id) override { names_.Forget(process_set_id); }
  void Cycle(common::HorovodGlobalState& /*state*/, common::ProcessSet& /*process_set*/,
             int32_t process_set_id) override {
    process_set_id_ = process_set_id;
  }
  void AfterExecute(const Executed& executed) override {
    if (executed.response.response_type() == common::Response::JOIN) {
      names_.AdvanceEpoch(process_set_id_);
    }
  }

 private:
  ::paceline::core::AutomaticNames names_;
  int32_t process_set_id_ = 0;  // whose coordination round is running; the background thread's
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_NAMING_NAMING_H
