#include "core/codecs/error_feedback.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "core/codecs/combine.h"
#include "core/codecs/convert.h"
#include "core/codecs/elements.h"
#include "core/codecs/vectorised.h"

namespace paceline::core {

namespace {

// What was wanted becomes what of it was lost on the way, or 0 where that is not finite.
struct LostKernel {
  static constexpr int64_t kTargetBytes = 4, kSourceBytes = 4;

  static void Run(uint8_t* __restrict wanted, const uint8_t* __restrict sent, int64_t chunks) {
    for (; chunks > 0; --chunks, wanted += kChunk * kTargetBytes, sent += kChunk * kSourceBytes) {
      for (int64_t i = 0; i < kChunk; ++i) {
        const uint32_t lost = BitsOf(Load<float>(wanted, i) - Load<float>(sent, i));
        Store(wanted, i, half::IfBelow(lost & half::kMagnitude, half::kInfinity, lost, 0));
      }
    }
  }
};

}  // namespace

void ErrorFeedback::Encode(const std::string& name, int64_t elements, int64_t begin, DataType type, const void* block,
                           int64_t count, uint8_t* bytes) {
  if (codec_.exact()) {
    return codec_.Encode(type, block, count, bytes);
  }
  codec_.Check(type);
  if (begin < 0 || count < 0 || begin + count > elements) {
    throw std::invalid_argument("elements " + std::to_string(begin) + " to " + std::to_string(begin + count) + " of " +
                                name + ", which has " + std::to_string(elements));
  }
  std::vector<float>& residual = residuals_[name];
  if (static_cast<int64_t>(residual.size()) != elements) {
    residual.assign(static_cast<size_t>(elements), 0.F);
  }
  const auto* source = static_cast<const uint8_t*>(block);
  float* kept = residual.data() + begin;
  for (int64_t left = count; left > 0;) {
    const int64_t some = std::min(left, kCodecSlice);
    std::array<float, kCodecSlice> wanted;
    std::array<float, kCodecSlice> sent;
    ToFloat(type, source, some, wanted.data());
    Combine(DataType::kFloat32, ReduceOp::kSum, wanted.data(), kept, some);
    codec_.Encode(DataType::kFloat32, wanted.data(), some, bytes);
    codec_.Decode(DataType::kFloat32, bytes, some, sent.data());
    RunOver<LostKernel>(reinterpret_cast<uint8_t*>(wanted.data()), reinterpret_cast<const uint8_t*>(sent.data()), some);
    std::copy_n(wanted.data(), some, kept);
    left -= some;
    kept += some;
    source += some * BytesOf(type);
    bytes += codec_.EncodedBytes(DataType::kFloat32, some);
  }
}

void ErrorFeedback::Put(const std::string& name, std::vector<float> residual) {
  std::replace_if(residual.begin(), residual.end(), [](float value) { return !std::isfinite(value); }, 0.F);
  residuals_[name] = std::move(residual);
}

}  // namespace paceline::core
