// Adding up tensors in CPU memory, outside of any collective.

#ifndef PACELINE_BRIDGE_PARTIAL_ACCUMULATE_H
#define PACELINE_BRIDGE_PARTIAL_ACCUMULATE_H

#include <cstddef>
#include <cstdint>

#include "horovod/common/common.h"

namespace horovod::paceline {

// Whether tensors of this type can be added up: numbers, booleans not.
bool CanAdd(common::DataType dtype);

// total[n] += more[n] for the first `bytes` bytes; sums of 16-bit floats are made in float32 and rounded to nearest.
void Add(common::DataType dtype, uint8_t* total, const uint8_t* more, size_t bytes);

// data[n] /= by, for the first `bytes` bytes.
void Divide(common::DataType dtype, uint8_t* data, size_t bytes, double by);

// Makes element `index` the whole number `value`, which the type can hold; and reads one.
void SetElement(common::DataType dtype, uint8_t* data, size_t index, double value);
double Element(common::DataType dtype, const uint8_t* data, size_t index);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PARTIAL_ACCUMULATE_H
