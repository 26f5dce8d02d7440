// How a call wants its tensor reduced.

#ifndef PACELINE_BRIDGE_REDUCING_H
#define PACELINE_BRIDGE_REDUCING_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

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

// Moves `held`, of `bytes` bytes, to `output`, and `tensor` to `held`. The two tensors may be the same memory.
inline void SwapHeld(const common::Tensor& tensor, common::Tensor& output, uint8_t* held, size_t bytes) {
  uint8_t* out = BytesOf(output);
  if (tensor.data() == out) {
    std::swap_ranges(out, out + bytes, held);
    return;
  }
  std::memcpy(out, held, bytes);
  std::memcpy(held, tensor.data(), bytes);
}

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_REDUCING_H
