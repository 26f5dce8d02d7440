// Lists of ranks in messages.

#ifndef PACELINE_CORE_TEXT_RANKS_H
#define PACELINE_CORE_TEXT_RANKS_H

#include <cstdint>
#include <string>
#include <vector>

namespace paceline::core {

// For example "[0, 2]".
inline std::string RanksText(const std::vector<int32_t>& ranks) {
  std::string text;
  for (const int32_t rank : ranks) {
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return "[" + text + "]";
}

}  // namespace paceline::core

#endif  // PACELINE_CORE_TEXT_RANKS_H
