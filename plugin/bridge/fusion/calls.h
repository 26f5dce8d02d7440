// Calls: small operations by which one rank asks all ranks of its process set for something, at a moment of its choice.
//
// Horovod performs an operation when every rank has asked for it. A call is ready when one rank, any rank, has asked:
// the coordinator counts it as complete (hook ready), and every rank, its own asker included, makes its part when the
// response arrives (hook entries). Responses are performed in the same order everywhere, so all ranks answer a call,
// and act on its result, at the same place in the sequence of operations. Calls are never cached and never merged with
// users' tensors. A call is an allreduce; its values are not negative and combined by maximum, so 0 means "nothing".

#ifndef PACELINE_BRIDGE_FUSION_CALLS_H
#define PACELINE_BRIDGE_FUSION_CALLS_H

#include <cstdint>
#include <memory>
#include <string>

#include "bridge/host_tensor.h"
#include "horovod/common/common.h"
#include "horovod/common/message.h"

namespace horovod {
namespace paceline {

enum class CallKind : int32_t {
  kSettings = 0,  // which policy does each rank ask for? One value per rank.
  kMeasure = 1,   // what did each rank measure?
  kSweep = 2,     // move this many bytes, to learn how long it takes; two parts that travel as one message
  kPlan = 3,      // the caller's plan, for all to follow
};

struct Call {
  CallKind kind = CallKind::kSettings;
  int32_t caller = 0;  // rank in the process set
  int64_t number = 0;  // the caller's own count
  int32_t part = 0;
};

bool IsCall(const std::string& name);
std::string NameOf(const Call& call);
// Of a name for which IsCall holds.
Call CallOf(const std::string& name);

// What the caller sends to the coordinator. Values are float64, those of a sweep float32.
common::Request RequestFor(const Call& call, int64_t elements);

// This rank's part in the operation called `name`.
common::TensorTableEntry EntryFor(const std::string& name, const std::shared_ptr<HostTensor>& buffer,
                                  int32_t process_set_id);

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_FUSION_CALLS_H
