#include "core/naming/name_mark.h"

#include <algorithm>
#include <string>

#include "core/codecs/codec.h"
#include "core/collectives/algorithms.h"

namespace paceline::core {

namespace {

constexpr char kBracket = '>', kBetween = '_';
constexpr std::string_view kPlain = "plain";

// The text before the next underscore, which is taken off.
std::string_view Take(std::string_view& text) {
  const auto end = std::min(text.find(kBetween), text.size());
  const auto word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

std::optional<int32_t> MethodNamed(std::string_view word) {
  if (word == "horovod") {
    return NameMark::kHorovods;
  }
  if (word == "auto") {
    return NameMark::kAuto;
  }
  for (int32_t method = 0; method < kAllreduceMethods; ++method) {
    if (word == NameOf(static_cast<AllreduceMethod>(method))) {
      return method;
    }
  }
  return std::nullopt;
}

// Of what is between brackets, which may be a user's.
std::optional<NameMark> Read(std::string_view text) {
  static const auto* codecs = new auto(CodecNames());  // never destroyed: threads may outlive static destructors
  const auto codec = std::find(codecs->begin(), codecs->end(), Take(text));
  if (codec == codecs->end()) {
    return std::nullopt;
  }
  NameMark mark;
  mark.codec = static_cast<int32_t>(codec - codecs->begin());
  mark.error_feedback = mark.codec != 0;
  auto word = Take(text);
  if (word == kPlain) {
    mark.error_feedback = false;
    word = Take(text);
  }
  if (!word.empty()) {
    mark.method = MethodNamed(word);
  }
  return text.empty() && mark.method.has_value() == !word.empty() ? std::optional(mark) : std::nullopt;
}

}  // namespace

NameMark NameMark::Of(std::string_view name) {
  auto open = name.find(kBracket);
  while (open != std::string_view::npos) {
    name.remove_prefix(open + 1);
    open = name.find(kBracket);
    if (const auto mark = open == std::string_view::npos ? std::nullopt : Read(name.substr(0, open))) {
      return *mark;
    }
  }
  return {};
}

}  // namespace paceline::core
