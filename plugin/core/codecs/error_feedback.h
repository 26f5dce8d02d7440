// What a codec loses of a gradient goes into the next one.

#ifndef PACELINE_CORE_CODECS_ERROR_FEEDBACK_H
#define PACELINE_CORE_CODECS_ERROR_FEEDBACK_H

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
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
// A step whose results are not all finite is one that whoever scales the loss will skip, on all ranks: what it lost is
// no part of any update, and all its gradients keep the residuals that they had before. As its finite ones may have
// been too large, too, one infinity holds for all of them. A gradient that comes again begins the next step; others of
// the step before may still be on their way (the pipelined exchange), and what they lose is kept all the same.
//
// Residuals are float32. One that is not finite (infinities and NaN are sent, but cannot be fed back) is
// dropped: 0. One thread at a time.
class ErrorFeedback {
 public:
  // Elements begin ... begin + count - 1 of the gradient `name`, which has `elements` of them.
  struct Part {
    std::string name;
    int64_t elements = 0, begin = 0, count = 0;
  };

  // Called once for each gradient that is handed in, when the one before under its name has its result. A gradient that
  // was in the running step already begins the next.
  void Begin(const std::string& name);
  // The result of this gradient is not finite. Of its step's others, those that have come again since keep what they
  // have.
  void Spoil(const std::string& name);

  // Encodes the parts, which lie in `block` one after the other, with what they lost before; otherwise as
  // Codec::Encode. Begin comes first. The residual of a gradient that had another number of elements is dropped.
  void Encode(const Codec& codec, const std::vector<Part>& parts, DataType type, const void* block, uint8_t* bytes);

  // To be saved with the optimizer, empty if there is none. Codecs that are exact leave none.
  std::vector<float> Of(const std::string& name) const;
  // What was saved; numbers in it that are not finite are dropped. Nothing: there is none.
  void Put(const std::string& name, std::vector<float> residual);

 private:
  struct Step {
    bool spoilt = false;
  };
  // `after`: what the gradient's last step lost, to be put in place of `before` when it comes again.
  struct Residual {
    std::vector<float> before, after;
    std::shared_ptr<Step> step;  // null: none since it was put
    const std::vector<float>& last() const;
  };
  // A part's, and where what it loses now goes.
  struct Kept {
    const float* before = nullptr;
    float* after = nullptr;
    int64_t count = 0;
  };
  std::vector<Kept> Find(const std::vector<Part>& parts);

  std::unordered_map<std::string, Residual> residuals_;
  std::shared_ptr<Step> running_ = std::make_shared<Step>();
};

// Whether none of these numbers is infinite or NaN.
bool AllFinite(DataType type, const void* block, int64_t count);

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_ERROR_FEEDBACK_H
