#include "core/partial/standstill.h"

#include <algorithm>
#include <cstddef>

#include "core/text/ranks.h"

namespace paceline::core {

std::string Standstill::Text(const std::vector<Name>& names, const std::string& of_set) {
  constexpr std::size_t kMostNames = 3;
  constexpr int64_t kSecond_ns = 1'000'000'000;
  std::string text = "All ranks" + of_set + " waited for each other in partial rounds for " +
                     std::to_string(kLimit_ns / kSecond_ns) +
                     " s. The rounds begin now, without the ranks that have not called.";
  for (std::size_t n = 0; n < std::min(names.size(), kMostNames); ++n) {
    text += " " + names[n].name + ": called by ranks " + RanksText(names[n].called) + ", not by ranks " +
            RanksText(names[n].missing) + ".";
  }
  if (names.size() > kMostNames) {
    text += " And " + std::to_string(names.size() - kMostNames) + " more.";
  }
  return text + " Call the same names on all ranks in each step.";
}

}  // namespace paceline::core
