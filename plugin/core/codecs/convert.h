// Blocks of other floating-point types, from and to float32.

#ifndef PACELINE_CORE_CODECS_CONVERT_H
#define PACELINE_CORE_CODECS_CONVERT_H

#include <cstdint>

#include "core/codecs/data_type.h"

namespace paceline::core {

// Of a floating-point `type`; others throw std::invalid_argument. Rounded to nearest: what is too large for float32, or
// on the way back for float16, becomes infinite.
void ToFloat(DataType type, const void* block, int64_t count, float* values);
void FromFloat(DataType type, const float* values, int64_t count, void* block);

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_CONVERT_H
