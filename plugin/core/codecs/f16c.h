// The x86 instructions that convert float16, which compilers do not find by themselves.

#ifndef PACELINE_CORE_CODECS_F16C_H
#define PACELINE_CORE_CODECS_F16C_H

#include <cstdint>

namespace paceline::core {

// As FloatFromFloat16 and Float16FromFloat do it, bit for bit, and five times as fast. They convert the first elements,
// a multiple of 8, and return how many; 0 where the processor has no such instructions. Memory may be aligned in any
// way.
int64_t WidenWithF16c(const uint8_t* halves, int64_t count, float* values);
int64_t NarrowWithF16c(const float* values, int64_t count, uint8_t* halves);

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_F16C_H
