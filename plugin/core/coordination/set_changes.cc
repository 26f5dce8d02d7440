#include "core/coordination/set_changes.h"

#include <algorithm>
#include <map>

#include "core/text/ranks.h"

namespace paceline::core {

namespace {

constexpr int64_t kSecond_ns = 1'000'000'000;

using Ranks = std::vector<int32_t>;

// By what each rank tells.
template <typename Told>
std::map<int32_t, Ranks> Grouped(const std::vector<SetChanges::OfRank>& ranks, const Told& told) {
  std::map<int32_t, Ranks> groups;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    groups[told(ranks[rank])].push_back(static_cast<int32_t>(rank));
  }
  return groups;
}

std::string Added(const std::map<int32_t, Ranks>& by_number) {
  if (by_number.size() < 2) {
    return "";
  }
  // Those that have registered the most wait for all others.
  Ranks missing;
  for (auto group = by_number.begin(); group != std::prev(by_number.end()); ++group) {
    missing.insert(missing.end(), group->second.begin(), group->second.end());
  }
  std::sort(missing.begin(), missing.end());
  return " hvd.add_process_set() was called by ranks " + RanksText(by_number.rbegin()->second) + ", not by ranks " +
         RanksText(missing) + ".";
}

std::string Removed(const std::map<int32_t, Ranks>& by_id) {
  if (by_id.size() < 2) {
    return "";
  }
  std::string text = " hvd.remove_process_set() was called";
  std::string separator;
  for (const auto& [id, ranks] : by_id) {
    if (id >= 0) {
      text += separator + " by ranks " + RanksText(ranks) + " for process set " + std::to_string(id);
      separator = ",";
    }
  }
  const auto none = by_id.find(-1);
  return text + (none == by_id.end() ? "" : ", not by ranks " + RanksText(none->second)) + ".";
}

}  // namespace

std::optional<SetChanges::Report> SetChanges::Follow(const std::vector<OfRank>& ranks, int64_t now_ns) {
  const auto added = Added(Grouped(ranks, [](const OfRank& rank) { return rank.registered; }));
  const auto removed = Removed(Grouped(ranks, [](const OfRank& rank) { return std::max(rank.removing, -1); }));
  if (added.empty() && removed.empty()) {
    since_ns_.reset();
    return std::nullopt;
  }
  if (!since_ns_) {
    since_ns_ = warned_ns_ = now_ns;
  }
  const bool error = limits_.error_ns > 0 && now_ns - *since_ns_ >= limits_.error_ns;
  if (!error && (limits_.warning_ns <= 0 || now_ns - warned_ns_ < limits_.warning_ns)) {
    return std::nullopt;
  }
  warned_ns_ = now_ns;
  return Report{error, "Ranks wait for others to change process sets, for " +
                           std::to_string((now_ns - *since_ns_) / kSecond_ns) + " s now." + added + removed +
                           " Make the same calls on all ranks, also on those that are not in the process set."};
}

}  // namespace paceline::core
