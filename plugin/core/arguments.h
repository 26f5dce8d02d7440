// Checks of what callers give; what is refused is told in the exception.

#ifndef PACELINE_CORE_ARGUMENTS_H
#define PACELINE_CORE_ARGUMENTS_H

#include <array>
#include <cmath>
#include <cstddef>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace paceline::core {

// The value, if it is finite and not negative; otherwise throws std::invalid_argument that says so of `what`.
inline double RequireNotNegative(const std::string& what, double value) {
  if (!std::isfinite(value) || value < 0) {
    std::ostringstream text;
    text << what << " is " << value << "; it must be finite and not negative";
    throw std::invalid_argument(text.str());
  }
  return value;
}

template <typename Enum, size_t count>
using NameTable = std::array<std::pair<const char*, Enum>, count>;

// The value of that name; otherwise throws std::invalid_argument that lists the names of `table`.
template <typename Enum, size_t count>
Enum ByName(const char* what, const NameTable<Enum, count>& table, const std::string& name) {
  std::string known;
  for (const auto& [its_name, value] : table) {
    if (name == its_name) {
      return value;
    }
    known.append(known.empty() ? "" : ", ").append(its_name);
  }
  throw std::invalid_argument("no " + std::string(what) + " is called '" + name + "'; known are: " + known);
}

}  // namespace paceline::core

#endif  // PACELINE_CORE_ARGUMENTS_H
