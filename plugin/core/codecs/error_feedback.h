// What a codec loses of a gradient goes into the next one.

#ifndef PACELINE_CORE_CODECS_ERROR_FEEDBACK_H
#define PACELINE_CORE_CODECS_ERROR_FEEDBACK_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/codecs/codec.h"

namespace paceline::core {

// Error feedback (Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019) round any codec: what encoding a
// gradient lost is its residual, and is added to the next gradient of the same name before that is encoded. Over time,
// what was decoded adds up to what was given, to within what one encoding loses.
//
// Residuals belong to positions in a gradient. It does not matter in which blocks, or whether of sums on their way
// through the ranks, as long as a rank encodes each position once for each gradient: so do the senders and the owner of
// a shard, each hop of a ring's reduce-scatter and its owner, each hop of a linear pipeline.
//
// Residuals are float32. One that is not finite (infinities and NaN travel, but there is no feeding them back) is
// dropped: 0. One thread at a time.
class ErrorFeedback {
 public:
  // Elements begin ... begin + count - 1 of the gradient `name`, which has `elements` of them.
  struct Part {
    std::string name;
    int64_t elements = 0, begin = 0, count = 0;
  };

  // Encodes the parts, which lie in `block` one after the other, with what they lost before; otherwise as
  // Codec::Encode. The residual of a gradient that had another number of elements is dropped.
  void Encode(const Codec& codec, const std::vector<Part>& parts, DataType type, const void* block, uint8_t* bytes);

  // By name: to be saved with the optimizer. Codecs that are exact leave none.
  const std::map<std::string, std::vector<float>>& residuals() const { return residuals_; }
  // What was saved; numbers in it that are not finite are dropped.
  void Put(const std::string& name, std::vector<float> residual);
  void Clear() { residuals_.clear(); }

 private:
  // A part's residual.
  struct Kept {
    float* at = nullptr;
    int64_t count = 0;
  };
  std::vector<Kept> Find(const std::vector<Part>& parts);

  std::map<std::string, std::vector<float>> residuals_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_ERROR_FEEDBACK_H
