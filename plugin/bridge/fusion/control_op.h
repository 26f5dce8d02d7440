// Control operations: small ones by which one rank asks all ranks of its process set for something, at a moment of its
// choice.
//
// Horovod performs an operation when every rank has asked for it. A control operation is ready when one
// rank, any rank, has asked: the coordinator counts it as complete (OverrideReady), and every rank, its own asker
// included, makes its part when the response arrives (BeforeExecute). Responses are performed in the same order
// everywhere, so all ranks answer a control operation, and act on its result, at the same place in the sequence of
// operations. They are never cached and never merged with users' tensors. Each is an allreduce; its values are not
// negative and combined by maximum, so 0 means "nothing".

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
  kSettings = 0,   // which policy does each rank ask for? Then: armed steps? Two values per rank.
  kMeasure = 1,    // what did each rank measure?
  kSweep = 2,      // move this many bytes, to learn how long it takes; two parts that travel as one message
  kPlan = 3,       // the asker's plan, for all to follow
  kFastSweep = 4,  // as kSweep, by the collective that messages of plans go by where all ranks want armed steps
  kBurst = 5,      // as kFastSweep, all that are asked for at once under way together
};

struct ControlOp {
  ControlKind kind = ControlKind::kSettings;
  int32_t asker = 0;   // rank in the process set
  int64_t number = 0;  // the asker's own count
  int32_t part = 0;
};

// The number of a kind of messages that are timed, or -1.
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
// One as what it was asked for, or an error about that.
bool OfControlOp(const common::Response& response);
std::string NameOf(const ControlOp& op);
// Of a name for which IsControlOp holds.
ControlOp ControlOpOf(const std::string& name);

// What the asker sends to the coordinator. Values are float64, those of a sweep float32.
common::Request RequestFor(const ControlOp& op, int64_t elements);

// This rank's part in the operation called `name`.
common::TensorTableEntry EntryFor(const std::string& name, const std::shared_ptr<CpuTensor>& buffer,
                                  int32_t process_set_id);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_FUSION_CONTROL_OP_H
