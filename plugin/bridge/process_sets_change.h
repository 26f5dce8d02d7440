// That a thread of this rank waits for all ranks to add or remove a process set, which no operation of Horovod says.

#ifndef PACELINE_BRIDGE_PROCESS_SETS_CHANGE_H
#define PACELINE_BRIDGE_PROCESS_SETS_CHANGE_H

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

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PROCESS_SETS_CHANGE_H
