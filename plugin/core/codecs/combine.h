// Element-wise reductions of blocks, and scaling: the arithmetic of an allreduce between its messages.

#ifndef PACELINE_CORE_CODECS_COMBINE_H
#define PACELINE_CORE_CODECS_COMBINE_H

#include <cstdint>

#include "core/codecs/data_type.h"

namespace paceline::core {

// accumulator[i] = accumulator[i] op incoming[i] for `count` elements. The blocks must not overlap; they may be aligned
// in any way.
//
//   float16, bfloat16   computed in float32 and rounded to nearest, once for each call
//   integers            wrap around
//   bool                sum and maximum are "or", product and minimum are "and"
//   min, max of floats  a NaN in either makes a NaN; -0 is less than 0
//
// The same blocks give the same bits on every processor, and exchanging accumulator and incoming does too, but for the
// payload where both are NaN.
void Combine(DataType type, ReduceOp op, void* accumulator, const void* incoming, int64_t count);

// block[i] = block[i] * factor, as Horovod does it: floating-point types that are smaller than float64 by the factor
// rounded to float32; integers in float64, cut off toward zero, except that what is out of range becomes the nearest
// number in range. A factor of 1 changes nothing. Throws std::invalid_argument for bool.
void Scale(DataType type, void* block, int64_t count, double factor);

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_COMBINE_H
