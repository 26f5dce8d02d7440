// An allreduce, or one of its halves: operations of the split exchange, which go by reserved names.

#ifndef PACELINE_BRIDGE_HALF_H
#define PACELINE_BRIDGE_HALF_H

#include <cstdint>
#include <string>

#include "bridge/reserved_names.h"
#include "core/collectives/message_terms.h"

namespace horovod::paceline {

// A reduce-scatter leaves each rank with its shard of the result; an all-gather gives all ranks the shards of all.
// Shards are those of core's DirectAllreduce. A half is the message of a single tensor.
enum class Half : uint8_t { kBoth, kReduceScatter, kAllGather };

inline Half HalfOf(const std::string& name) {
  // Frameworks put words of theirs before names.
  if (name.find(kReduceScatterNames) != std::string::npos) {
    return Half::kReduceScatter;
  }
  return name.find(kAllGatherNames) != std::string::npos ? Half::kAllGather : Half::kBoth;
}

// In core's MessageTerms; not of both.
constexpr int32_t WayOf(Half half) {
  using ::paceline::core::MessageTerms;
  return half == Half::kReduceScatter ? MessageTerms::kReduceScatter : MessageTerms::kAllGather;
}

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_HALF_H
