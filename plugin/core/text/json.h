// A JSON object as text: what crosses to Python goes by name, not by place.

#ifndef PACELINE_CORE_TEXT_JSON_H
#define PACELINE_CORE_TEXT_JSON_H

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace paceline::core {

// Json().Put("steps", 3).Put("names", names).Text(): whole numbers, floating-point ones (null where there is none:
// NaN, infinity), bool, text in UTF-8, and vectors and pairs of all these, which become lists.
class Json {
 public:
  template <typename T>
  Json& Put(std::string_view name, const T& value) {
    text_ += text_.empty() ? '{' : ',';
    Append(name);
    text_ += ':';
    Append(value);
    return *this;
  }

  std::string Text() const { return text_.empty() ? "{}" : text_ + '}'; }

 private:
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T>, int> = 0>
  void Append(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      text_ += value ? "true" : "false";
    } else {
      if constexpr (std::is_floating_point_v<T>) {
        if (!std::isfinite(value)) {
          text_ += "null";
          return;
        }
      }
      std::array<char, 32> digits{};
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
      text_.append(digits.data(), end.ptr);
    }
  }
  void Append(std::string_view text);
  void Append(const std::string& text) { Append(std::string_view(text)); }
  void Append(const char* text) { Append(std::string_view(text)); }
  template <typename T>
  void Append(const std::vector<T>& values) {
    text_ += '[';
    for (size_t n = 0; n < values.size(); ++n) {
      text_ += n == 0 ? "" : ",";
      Append(static_cast<const T&>(values[n]));
    }
    text_ += ']';
  }
  template <typename A, typename B>
  void Append(const std::pair<A, B>& values) {
    text_ += '[';
    Append(values.first);
    text_ += ',';
    Append(values.second);
    text_ += ']';
  }

  std::string text_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_TEXT_JSON_H
