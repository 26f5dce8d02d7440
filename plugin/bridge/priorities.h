// In which order hooks ask the participants.

#ifndef PACELINE_BRIDGE_PRIORITIES_H
#define PACELINE_BRIDGE_PRIORITIES_H

namespace horovod::paceline {

// Hooks ask the first one first, but RoundPerformed asks it last. A reason says whom a participant must be asked before
// or after, in which hooks; integration_tests/unit/test_participants.py compares it with this order and the classes. No
// reason is known for the places of those without.
enum class Priority {
  kFailure,
  kSettings,
  kNaming,
  kCoordination,
  kProcessSetsWatch,
  // Before kExchanges in Enqueue: looks at what is submitted before a channel takes it over.
  kNumerics,
  // Before kPartial in Enqueue: takes the calls that are registered; others of a name that was partial are refused.
  kExchanges,
  // Before kMerging in Fuse: takes large tensors that no plan merges.
  kPipelined,
  // Before kPartial in Popped, Fuse: takes its questions out before others see them.
  kLeaving,
  // Before kMerging in Popped: drops stale votes before they are held back.
  // Before kMerging in Fuse: packs its messages before the plan's.
  kPartial,
  // Before kMerging in Popped: takes tensors of an armed step before they are held back for their group.
  // After kMerging in RoundPerformed: follows the plan that is in force then.
  kArmed,
  // Before kJoins in Popped: must see a rank's join to let go what it holds back.
  // After kCollectives in RoundPerformed: our collectives have ended then.
  kMerging,
  kJoins,
  kFusionBuffers,
  kRecording,
  kCollectives,
  kStageCommunicators,
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PRIORITIES_H
