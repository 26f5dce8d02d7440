// How a call wants its tensor reduced.

#ifndef PACELINE_BRIDGE_REDUCING_H
#define PACELINE_BRIDGE_REDUCING_H

#include <cstdint>

#include "horovod/common/common.h"

namespace horovod::paceline {

struct Reducing {
  common::ReduceOp op = common::ReduceOp::SUM;
  double prescale = 1, postscale = 1;
  int32_t process_set_id = 0;
};

// Horovod's tensors give their memory as constant also where results go.
inline uint8_t* BytesOf(common::Tensor& tensor) {
  return static_cast<uint8_t*>(const_cast<void*>(tensor.data()));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_REDUCING_H
