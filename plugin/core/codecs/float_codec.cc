#include "core/codecs/float_codec.h"

#include <algorithm>

#include "core/codecs/combine.h"
#include "core/codecs/convert.h"

namespace paceline::core {

namespace {

bool IsFloat(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kBfloat16 || type == DataType::kFloat32 ||
         type == DataType::kFloat64;
}

// Calls `visit` with the first element and the number of elements of each slice.
template <typename Visit>
void ForSlices(int64_t count, const Visit& visit) {
  for (int64_t begin = 0; begin < count; begin += kCodecSlice) {
    visit(begin, std::min(kCodecSlice, count - begin));
  }
}

}  // namespace

std::string FloatCodec::Refusal(DataType type) const {
  if (IsFloat(type) && Pays(type)) {
    return {};
  }
  const std::string start = R"(codec ")" + std::string(name()) + R"(" does not take )" + NameOf(type) + ": ";
  if (!IsFloat(type)) {
    return start + R"(only floating-point values survive rounding; use codec="none" for this tensor)";
  }
  return start + R"(it takes no more bytes as it is and is more precise; use codec="none", or "q8" for fewer bytes)";
}

int64_t FloatCodec::EncodedBytes(DataType type, int64_t count) const {
  Check(type);
  return count / kCodecSlice * SliceBytes(kCodecSlice) + SliceBytes(count % kCodecSlice);
}

void FloatCodec::Encode(DataType type, const void* block, int64_t count, uint8_t* bytes) const {
  Check(type);
  ForSlices(count, [&](int64_t begin, int64_t some) {
    Values values;
    ToFloat(type, static_cast<const uint8_t*>(block) + begin * BytesOf(type), some, values.data());
    if (some == kCodecSlice) {
      EncodeSlice(values.data(), bytes);
    } else {
      std::fill(values.begin() + some, values.end(), 0.F);
      std::array<uint8_t, kMostBytes> whole;
      EncodeSlice(values.data(), whole.data());
      std::copy_n(whole.data(), SliceBytes(some), bytes);
    }
    bytes += SliceBytes(some);
  });
}

void FloatCodec::DecodeSome(const uint8_t* bytes, int64_t count, Values& values) const {
  if (count == kCodecSlice) {
    return DecodeSlice(bytes, values.data());
  }
  std::array<uint8_t, kMostBytes> whole{};
  std::copy_n(bytes, SliceBytes(count), whole.data());
  DecodeSlice(whole.data(), values.data());
}

void FloatCodec::Decode(DataType type, const uint8_t* bytes, int64_t count, void* block) const {
  Check(type);
  ForSlices(count, [&](int64_t begin, int64_t some) {
    Values values;
    DecodeSome(bytes, some, values);
    FromFloat(type, values.data(), some, static_cast<uint8_t*>(block) + begin * BytesOf(type));
    bytes += SliceBytes(some);
  });
}

void FloatCodec::DecodeCombine(DataType type, ReduceOp op, const uint8_t* bytes, int64_t count, void* block) const {
  Check(type);
  ForSlices(count, [&](int64_t begin, int64_t some) {
    Values values;
    DecodeSome(bytes, some, values);
    void* const target = static_cast<uint8_t*>(block) + begin * BytesOf(type);
    if (type == DataType::kFloat32) {
      Combine(type, op, target, values.data(), some);
    } else if (type == DataType::kFloat64) {
      std::array<double, kCodecSlice> wide;
      FromFloat(type, values.data(), some, wide.data());
      Combine(type, op, target, wide.data(), some);
    } else {
      Values sums;
      ToFloat(type, target, some, sums.data());
      Combine(DataType::kFloat32, op, sums.data(), values.data(), some);
      FromFloat(type, sums.data(), some, target);
    }
    bytes += SliceBytes(some);
  });
}

}  // namespace paceline::core
