// Codecs q8 and q4: a small whole number for each value, and a step for every 256.

#ifndef PACELINE_CORE_CODECS_STEPS_H
#define PACELINE_CORE_CODECS_STEPS_H

#include "core/codecs/float_codec.h"

namespace paceline::core {

// Q of Pipe-SGD (Li et al., NeurIPS 2018), with a step for every 256 elements where the paper has one for a tensor: a
// step for fewer follows the values more closely, and its 4 bytes are 1.6 % of what 256 elements take in q8, 3.1 % in
// q4. Fused messages hold tensors of very different magnitudes, too.
//
// The bytes of up to 256 values: the step, a float32, then a signed code for each. With `most` the greatest code, 127
// in q8, a byte each, and 7 in q4, two to a byte, the first in its low half:
//
//   step      code                    value
//   > 0       -most..most             code * step, nearest to the value; step = greatest magnitude / most
//   < 0       -(most-1)..(most-1)     code * -step; step = -(greatest finite magnitude) / (most - 1)
//             most, -most             infinity, -infinity
//             -(most+1)               NaN
//
// So where all values are finite each is met to within half a step; among others that are not, each is too, and
// those stay what they are; only -0 becomes 0. A step is at least 2^-126, the smallest that is no subnormal number:
// processors that flush these to zero decode the same.
template <int kBits>
class StepCodec final : public FloatCodec {
 public:
  static_assert(kBits == 8 || kBits == 4);
  const char* name() const override { return kBits == 8 ? "q8" : "q4"; }

 protected:
  int64_t SliceBytes(int64_t count) const override { return count > 0 ? 4 + (count * kBits + 7) / 8 : 0; }
  void EncodeSlice(const float* values, uint8_t* bytes) const override;
  void DecodeSlice(const uint8_t* bytes, float* values) const override;
  bool Pays(DataType /*type*/) const override { return true; }
};

extern template class StepCodec<8>;
extern template class StepCodec<4>;

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_STEPS_H
