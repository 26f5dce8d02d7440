// Ranks that wait for all ranks to add or remove a process set, which no operation of Horovod says.

#ifndef PACELINE_BRIDGE_PROCESS_SETS_CHANGE_H
#define PACELINE_BRIDGE_PROCESS_SETS_CHANGE_H

#include <optional>
#include <vector>

#include "bridge/participant.h"
#include "core/coordination/set_changes.h"

namespace horovod::paceline {

// Hook process_sets_change: the calling thread waits for all ranks to add or remove a process set, as long as this
// exists.
class ProcessSetsChange {
 public:
  ProcessSetsChange();
  ~ProcessSetsChange();
  ProcessSetsChange(const ProcessSetsChange&) = delete;
  ProcessSetsChange& operator=(const ProcessSetsChange&) = delete;
  ProcessSetsChange(ProcessSetsChange&&) = delete;
  ProcessSetsChange& operator=(ProcessSetsChange&&) = delete;

  // A thread of this rank does.
  static bool waited_for();
};

// Rank 0 reports waits as it does those for operations, with Horovod's variables of its stall inspector, which knows
// operations alone.
class ProcessSetsWatch : public Participant {
 public:
  void BeginWorld() override;
  void RegisteredSets(const std::vector<int>& all) override;

 private:
  std::optional<::paceline::core::SetChanges> changes_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PROCESS_SETS_CHANGE_H
