#include "core/codecs/error_feedback.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "core/codecs/combine.h"
#include "core/codecs/convert.h"
#include "core/codecs/elements.h"
#include "core/codecs/half_types.h"
#include "core/codecs/vectorised.h"

namespace paceline::core {

namespace {

// What was wanted becomes what of it was lost on the way, or 0 where that is not finite.
struct Lost {
  using Target = Whole<float>;
  using Source = Whole<float>;
  static float Of(float wanted, float sent) {
    const uint32_t lost = BitsOf(wanted - sent);
    return FloatOf(half::IfBelow(lost & half::kMagnitude, half::kInfinity, lost, 0));
  }
};

// The largest, as bits: infinities and NaN are above all others.
struct Magnitude {
  static void Run(const float* values, uint32_t* most) {
    for (int64_t i = 0; i < kCodecSlice; ++i) {
      *most = std::max(*most, BitsOf(values[i]) & half::kMagnitude);
    }
  }
};

}  // namespace

std::vector<ErrorFeedback::Kept> ErrorFeedback::Find(const std::vector<Part>& parts) {
  std::vector<Kept> found;
  for (const auto& part : parts) {
    if (part.begin < 0 || part.count < 0 || part.begin + part.count > part.elements) {
      throw std::invalid_argument("elements " + std::to_string(part.begin) + " to " +
                                  std::to_string(part.begin + part.count) + " of " + part.name + ", which has " +
                                  std::to_string(part.elements));
    }
    auto& [before, after, step] = residuals_[part.name];
    const auto elements = static_cast<size_t>(part.elements);
    if (before.size() != elements) {
      before.assign(elements, 0.F);
      after = before;
    }
    found.push_back({before.data() + part.begin, after.data() + part.begin, part.count});
  }
  return found;
}

const std::vector<float>& ErrorFeedback::Residual::last() const {
  return step != nullptr && !step->spoilt && !after.empty() ? after : before;
}

void ErrorFeedback::Begin(const std::string& name) {
  auto& residual = residuals_[name];
  if (residual.step == running_) {
    running_ = std::make_shared<Step>();
  }
  if (&residual.last() == &residual.after) {
    residual.before.swap(residual.after);
  }
  residual.step = running_;
  residual.after = residual.before;
}

void ErrorFeedback::Spoil(const std::string& name) {
  const auto& step = residuals_[name].step;
  if (step != nullptr) {
    step->spoilt = true;
  }
}

std::vector<float> ErrorFeedback::Of(const std::string& name) const {
  const auto found = residuals_.find(name);
  return found == residuals_.end() ? std::vector<float>{} : found->second.last();
}

void ErrorFeedback::Encode(const Codec& codec, const std::vector<Part>& parts, DataType type, const void* block,
                           uint8_t* bytes) {
  codec.Check(type);
  int64_t left = 0;
  for (const auto& part : parts) {
    left += part.count;
  }
  if (codec.exact()) {
    return codec.Encode(type, block, left, bytes);
  }
  auto kept = Find(parts);
  auto part = kept.begin();
  const auto* source = static_cast<const uint8_t*>(block);
  while (left > 0) {
    const int64_t slice = std::min(left, kCodecSlice);
    std::array<float, kCodecSlice> wanted;
    std::array<float, kCodecSlice> sent;
    std::array<float*, kCodecSlice> to;
    ToFloat(type, source, slice, wanted.data());
    // Where each run of elements of one part has its residual.
    std::array<int64_t, kCodecSlice> run;
    int64_t runs = 0;
    for (int64_t done = 0; done < slice; ++runs) {
      for (; part->count == 0; ++part) {
      }
      const auto index = static_cast<size_t>(runs);
      to[index] = part->after;
      run[index] = std::min(part->count, slice - done);
      Combine(DataType::kFloat32, ReduceOp::kSum, wanted.data() + done, part->before, run[index]);
      part->before += run[index];
      part->after += run[index];
      part->count -= run[index];
      done += run[index];
    }
    codec.Encode(DataType::kFloat32, wanted.data(), slice, bytes);
    codec.Decode(DataType::kFloat32, bytes, slice, sent.data());
    RunOver<Lost>(reinterpret_cast<uint8_t*>(wanted.data()), reinterpret_cast<const uint8_t*>(sent.data()), slice);
    const float* lost = wanted.data();
    for (size_t index = 0; index < static_cast<size_t>(runs); lost += run[index++]) {
      std::copy_n(lost, run[index], to[index]);
    }
    left -= slice;
    source += slice * BytesOf(type);
    bytes += codec.EncodedBytes(DataType::kFloat32, slice);
  }
}

void ErrorFeedback::Put(const std::string& name, std::vector<float> residual) {
  if (residual.empty()) {
    residuals_.erase(name);
    return;
  }
  std::replace_if(residual.begin(), residual.end(), [](float value) { return !std::isfinite(value); }, 0.F);
  residuals_[name] = {std::move(residual), {}, nullptr};
}

bool AllFinite(DataType type, const void* block, int64_t count) {
  const auto* source = static_cast<const uint8_t*>(block);
  for (int64_t done = 0; done < count; done += kCodecSlice) {
    const auto slice = std::min(count - done, kCodecSlice);
    std::array<float, kCodecSlice> values{};
    ToFloat(type, source + done * BytesOf(type), slice, values.data());
    uint32_t most = 0;
    RunVectorised<Magnitude>(values.data(), &most);
    if (most >= half::kInfinity) {
      return false;
    }
  }
  return true;
}

}  // namespace paceline::core
