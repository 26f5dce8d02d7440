// Control operations: small allreduces with which a single rank requests an action of all ranks of its process set.
//
// Horovod performs an operation once all ranks have submitted it. A control operation is ready once a single rank has
// submitted it: the coordinator counts it as complete (OverrideReady), and each rank, including the submitting rank,
// creates its tensor when the response arrives (BeforeExecute). All ranks perform responses in the same order. So all
// ranks answer a control operation, and act on its result, at the same place in the sequence of operations. Control
// operations are never cached and never merged with tensors of users. Values are not negative and are reduced by
// maximum, so 0 means "nothing". Sweeps are sums: only their duration counts.

#ifndef PACELINE_BRIDGE_FUSION_CONTROL_OP_H
#define PACELINE_BRIDGE_FUSION_CONTROL_OP_H

#include <cstdint>
#include <memory>
#include <string>

#include "bridge/cpu_tensor.h"
#include "bridge/reserved_names.h"
#include "horovod/common/common.h"
#include "horovod/common/message.h"

namespace horovod::paceline {

enum class ControlKind : int32_t {
  kSettings = 0,   // two values per rank: its policy, and 1 if it wants armed steps
  kMeasure = 1,    // measurements of each rank
  kSweep = 2,      // a timed message of a given size, in two parts that are sent as one message
  kPlan = 3,       // a plan of the submitting rank, which all ranks follow
  kFastSweep = 4,  // as kSweep, with the collective of planned messages if all ranks want armed steps
  kBurst = 5,      // as kFastSweep; all messages requested together are in flight together
};

struct ControlOp {
  ControlKind kind = ControlKind::kSettings;
  int32_t asker = 0;   // the submitting rank, in the process set
  int64_t number = 0;  // counter of the asker
  int32_t part = 0;
};

// Index of a kind of timed messages; -1 for other kinds.
constexpr size_t kSweepKinds = 3;
inline int32_t SweepOf(ControlKind kind) {
  switch (kind) {
    case ControlKind::kSweep:
      return 0;
    case ControlKind::kFastSweep:
      return 1;
    case ControlKind::kBurst:
      return 2;
    default:
      return -1;
  }
}
inline bool IsControlOp(const std::string& name) { return Begins(name, kControlNames) && !Begins(name, kLeavingNames); }
// Returns true for the response of a control operation: a result or an error.
bool OfControlOp(const common::Response& response);
std::string NameOf(const ControlOp& op);
// Parses a name for which IsControlOp holds. Throws std::invalid_argument for a malformed name.
ControlOp ControlOpOf(const std::string& name);

// Request that the asker sends to the coordinator. Values are float64; values of a sweep are float32.
common::Request RequestFor(const ControlOp& op, int64_t elements);

// Entry of this rank for the operation `name`, with `buffer` as input and output.
common::TensorTableEntry EntryFor(const std::string& name, const std::shared_ptr<CpuTensor>& buffer,
                                  int32_t process_set_id);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_FUSION_CONTROL_OP_H
