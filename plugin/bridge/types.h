// Horovod's types of elements and operations in the words of core.

#ifndef PACELINE_BRIDGE_TYPES_H
#define PACELINE_BRIDGE_TYPES_H

#include <optional>

#include "core/codecs/data_type.h"
#include "horovod/common/common.h"

namespace horovod::paceline {

// Nothing: not one that we reduce. An average is a sum and a factor.
std::optional<::paceline::core::DataType> TypeOf(common::DataType dtype);
std::optional<::paceline::core::ReduceOp> OpOf(common::ReduceOp op);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_TYPES_H
