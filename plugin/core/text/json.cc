#include "core/text/json.h"

namespace paceline::core {

void Json::Append(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  text_ += '"';
  for (const char one : text) {
    const auto byte = static_cast<unsigned char>(one);
    if (one == '"' || one == '\\') {
      text_ += '\\';
      text_ += one;
    } else if (byte < 0x20) {
      text_ += "\\u00";
      text_ += kHex[byte >> 4U];
      text_ += kHex[byte & 15U];
    } else {
      text_ += one;
    }
  }
  text_ += '"';
}

}  // namespace paceline::core
