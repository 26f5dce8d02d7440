// Allreduce, reduce and broadcast as Horovod asks for them, on our own collectives.

#ifndef PACELINE_BRIDGE_COLLECTIVES_OPERATIONS_H
#define PACELINE_BRIDGE_COLLECTIVES_OPERATIONS_H

#include <vector>

#include "bridge/collectives/collectives.h"
#include "bridge/collectives/parts.h"
#include "core/codecs/data_type.h"
#include "horovod/common/ops/collective_operations.h"

namespace horovod::paceline {

// Sum, average, minimum, maximum and product of tensors in memory of the CPU; also reduces and measurements of pairs,
// which go by reserved names (reserved_names.h). Horovod's list of operations goes on to its own where this is not
// enabled; the answer is the same on all ranks.
class OwnAllreduce : public common::AllreduceOp {
 public:
  OwnAllreduce(common::HorovodGlobalState& state, Collectives& collectives)
      : AllreduceOp(&state), collectives_(collectives) {}

  bool Enabled(const common::ParameterManager& manager, const std::vector<common::TensorTableEntry>& entries,
               const common::Response& response) const override;
  // Returns Status::InProgress() without entries: they are finished when they have been sent. Otherwise throws, with
  // all entries left.
  common::Status Execute(std::vector<common::TensorTableEntry>& entries, const common::Response& response) override;

 private:
  bool Takes(const std::vector<common::TensorTableEntry>& entries, const common::Response& response) const;
  AutoChoice::Pick PickFor(const MessagePart& part, ::paceline::core::DataType dtype, int32_t ranks);

  Collectives& collectives_;
};

// The same for broadcasts.
class OwnBroadcast : public common::BroadcastOp {
 public:
  OwnBroadcast(common::HorovodGlobalState& state, Collectives& collectives)
      : BroadcastOp(&state), collectives_(collectives) {}

  bool Enabled(const common::ParameterManager& manager, const std::vector<common::TensorTableEntry>& entries,
               const common::Response& response) const override;
  common::Status Execute(std::vector<common::TensorTableEntry>& entries, const common::Response& response) override;

 private:
  Collectives& collectives_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_OPERATIONS_H
