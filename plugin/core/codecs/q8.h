// Codec q8: a byte for each value, and a scale for every 256.

#ifndef PACELINE_CORE_CODECS_Q8_H
#define PACELINE_CORE_CODECS_Q8_H

#include "core/codecs/float_codec.h"

namespace paceline::core {

// Q of Pipe-SGD (Li et al., NeurIPS 2018), with a scale for every 256 elements where the paper has one for a tensor: a
// scale for fewer follows the values more closely, and its 4 bytes are 1.6 % of what 256 elements take. Fused messages
// hold tensors of very different magnitudes, too.
//
// The bytes of up to 256 values: the step, a float32, then a signed code for each.
//
//   step      code        value
//   > 0       -127..127   code * step, nearest to the value; step = greatest magnitude / 127
//   < 0       -126..126   code * -step; step = -(greatest finite magnitude) / 126
//             127, -127   infinity, -infinity
//             -128        NaN
//
// So where all values are finite each is met to within half a step; among others that are not, each is too, and
// those stay what they are; only -0 becomes 0. A step is at least 2^-126, the smallest that is no subnormal number:
// processors that flush these to zero decode the same.
class Q8Codec final : public FloatCodec {
 public:
  const char* name() const override { return "q8"; }

 protected:
  int64_t SliceBytes(int64_t count) const override { return count > 0 ? 4 + count : 0; }
  void EncodeSlice(const float* values, uint8_t* bytes) const override;
  void DecodeSlice(const uint8_t* bytes, float* values) const override;
  bool Pays(DataType /*type*/) const override { return true; }
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_Q8_H
