#include "core/codecs/codec.h"

#include <array>
#include <stdexcept>

#include "core/codecs/bf16.h"
#include "core/codecs/none.h"
#include "core/codecs/steps.h"

namespace paceline::core {

namespace {

using Codecs = std::array<const Codec*, 4>;

const Codecs& All() {
  static const auto* all = new Codecs{new NoCodec, new Bf16Codec, new StepCodec<8>, new StepCodec<4>};
  return *all;
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

const Codec& CodecNumbered(int32_t number) { return *All().at(static_cast<size_t>(number)); }

std::vector<std::string> CodecNames() {
  std::vector<std::string> names;
  names.reserve(All().size());
  for (const Codec* codec : All()) {
    names.emplace_back(codec->name());
  }
  return names;
}

}  // namespace paceline::core
