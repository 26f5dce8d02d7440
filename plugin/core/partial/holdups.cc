#include "core/partial/holdups.h"

#include <algorithm>

namespace paceline::core {

void Holdups::Open::Began(const std::string& name, int64_t now_ns) {
  const auto [place, is_new] = by_name_.try_emplace(name);
  if (is_new) {
    place->second = since_ns_.insert(since_ns_.end(), now_ns);
  }
}

void Holdups::Open::Ended(const std::string& name) {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) {
    since_ns_.erase(found->second);
    by_name_.erase(found);
  }
}

void Holdups::Began(int32_t set, const std::string& name, bool partial, int64_t now_ns) {
  auto& open = sets_[set];
  (partial ? open.partial : open.full).Began(name, now_ns);
}

void Holdups::Ended(int32_t set, const std::string& name) {
  const auto found = sets_.find(set);
  if (found != sets_.end()) {
    found->second.full.Ended(name);
    found->second.partial.Ended(name);
  }
}

bool Holdups::none() const {
  return std::all_of(sets_.begin(), sets_.end(),
                     [](const auto& set) { return set.second.full.none() && set.second.partial.none(); });
}

bool Holdups::Absent(int32_t set, int64_t now_ns) const {
  for (const auto& [id, open] : sets_) {
    if (open.full.Oldest(now_ns) > timeout_ns_ || (id != set && open.partial.Oldest(now_ns) > timeout_ns_)) {
      return true;
    }
  }
  return false;
}

}  // namespace paceline::core
