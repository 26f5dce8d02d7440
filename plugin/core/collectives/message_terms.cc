#include "core/collectives/message_terms.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "core/codecs/codec.h"
#include "core/collectives/algorithms.h"

namespace paceline::core {

namespace {

constexpr uint32_t kCodecAt = 4, kBlockAt = 8, kTensorsAt = 32;
constexpr uint64_t kWays = (uint64_t{1} << kCodecAt) - 1;
constexpr uint64_t kCodecs = (uint64_t{1} << (kBlockAt - kCodecAt)) - 1;
constexpr uint64_t kBlocks = (uint64_t{1} << (kTensorsAt - kBlockAt)) - 1;

const char* NameOfWay(int32_t way) {
  switch (way) {
    case MessageTerms::kReduce:
      return "reduce";
    case MessageTerms::kBroadcast:
      return "broadcast";
    case MessageTerms::kPing:
      return "measurement";
    case MessageTerms::kReduceScatter:
      return "reduce-scatter";
    case MessageTerms::kAllGather:
      return "all-gather";
    default:
      return way < kAllreduceMethods ? NameOf(static_cast<AllreduceMethod>(way)) : "unknown";
  }
}

}  // namespace

void TensorsDigest::Byte(uint8_t byte) { value_ = (value_ ^ byte) * 16777619U; }

void TensorsDigest::Add(const std::string& name) {
  std::for_each(name.begin(), name.end(), [this](char one) { Byte(static_cast<uint8_t>(one)); });
  Byte(0);
}

void TensorsDigest::Add(int64_t number) {
  for (uint32_t shift = 0; shift < 64; shift += 8) {
    Byte(static_cast<uint8_t>(static_cast<uint64_t>(number) >> shift));
  }
}

MessageTerms MessageTerms::Of(uint64_t bits) {
  return {static_cast<int32_t>(bits & kWays), static_cast<int32_t>(bits >> kCodecAt & kCodecs),
          static_cast<int64_t>(bits >> kBlockAt & kBlocks), static_cast<uint32_t>(bits >> kTensorsAt)};
}

uint64_t MessageTerms::Bits() const {
  const auto least_block = std::clamp<int64_t>(block, 0, static_cast<int64_t>(kBlocks));
  return (static_cast<uint64_t>(way) & kWays) | (static_cast<uint64_t>(codec) & kCodecs) << kCodecAt |
         static_cast<uint64_t>(least_block) << kBlockAt | static_cast<uint64_t>(tensors) << kTensorsAt;
}

std::string MessageTerms::Text() const {
  const auto codecs = CodecNames();
  std::ostringstream text;
  text << NameOfWay(way) << ", codec "
       << (static_cast<size_t>(codec) < codecs.size() ? codecs[static_cast<size_t>(codec)] : std::to_string(codec))
       << ", blocks of " << block << " elements, tensors 0x" << std::hex << tensors;
  return text.str();
}

}  // namespace paceline::core
