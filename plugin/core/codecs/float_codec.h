// What all codecs of floating-point values share: a codec says how 256 float32 are encoded, this class does the rest.

#ifndef PACELINE_CORE_CODECS_FLOAT_CODEC_H
#define PACELINE_CORE_CODECS_FLOAT_CODEC_H

#include <array>

#include "core/codecs/codec.h"

namespace paceline::core {

// float64 is rounded to float32 before it is encoded.
class FloatCodec : public Codec {
 public:
  std::string Refusal(DataType type) const final;
  bool exact() const final { return false; }
  int64_t EncodedBytes(DataType type, int64_t count) const final;
  void Encode(DataType type, const void* block, int64_t count, uint8_t* bytes) const final;
  void Decode(DataType type, const uint8_t* bytes, int64_t count, void* block) const final;
  void DecodeCombine(DataType type, ReduceOp op, const uint8_t* bytes, int64_t count, void* block) const final;

 protected:
  // No codec makes more of a slice.
  static constexpr int64_t kMostBytes = 4 * kCodecSlice;
  using Values = std::array<float, kCodecSlice>;

  // Of at most kCodecSlice elements; grows with their number.
  virtual int64_t SliceBytes(int64_t count) const = 0;
  // Always of kCodecSlice elements. The encoding of fewer is the first SliceBytes of the encoding of these, padded with
  // zeros.
  virtual void EncodeSlice(const float* values, uint8_t* bytes) const = 0;
  virtual void DecodeSlice(const uint8_t* bytes, float* values) const = 0;
  // Whether values of this floating-point type become smaller, or stay what they are.
  virtual bool Pays(DataType type) const = 0;

 private:
  void DecodeSome(const uint8_t* bytes, int64_t count, Values& values) const;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_CODECS_FLOAT_CODEC_H
