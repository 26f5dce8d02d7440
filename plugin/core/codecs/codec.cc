#include "core/codecs/codec.h"

#include <array>
#include <stdexcept>

#include "core/codecs/bf16.h"
#include "core/codecs/none.h"
#include "core/codecs/q8.h"

namespace paceline::core {

namespace {

const std::array<const Codec*, 4>& All() {
  static const NoCodec none;
  static const Bf16Codec bf16(Bf16Codec::Rounding::kNearest);
  static const Bf16Codec trunc16(Bf16Codec::Rounding::kTowardZero);
  static const Q8Codec q8;
  static const std::array<const Codec*, 4> all = {&none, &bf16, &trunc16, &q8};
  return all;
}

}  // namespace

void Codec::Check(DataType type) const {
  if (const std::string refusal = Refusal(type); !refusal.empty()) {
    throw std::invalid_argument(refusal);
  }
}

const Codec& CodecNamed(const std::string& name) {
  std::string known;
  for (const Codec* codec : All()) {
    if (name == codec->name()) {
      return *codec;
    }
    known += (known.empty() ? "" : ", ") + std::string(codec->name());
  }
  throw std::invalid_argument("there is no codec \"" + name + "\"; there are: " + known);
}

std::vector<std::string> CodecNames() {
  std::vector<std::string> names;
  names.reserve(All().size());
  for (const Codec* codec : All()) {
    names.emplace_back(codec->name());
  }
  return names;
}

}  // namespace paceline::core
