// Detects that ranks wait for others to add or remove a process set.

#ifndef PACELINE_CORE_COORDINATION_SET_CHANGES_H
#define PACELINE_CORE_COORDINATION_SET_CHANGES_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace paceline::core {

// In every coordination round each rank tells how many process sets it has registered, and which one it removes. A
// change takes effect in the round in which all ranks tell the same. So as long as they differ, ranks wait.
//
// | state     | event                          | next      | effect                              |
// | agreed    | ranks differ                   | differing | the time counts                     |
// | differing | ranks tell the same            | agreed    |                                     |
// | differing | each further `warning` of time | differing | a warning                           |
// | differing | `error` of time                | differing | an error, which ends this object    |
class SetChanges {
 public:
  struct Limits {
    int64_t warning_ns, error_ns;  // 0: never
  };
  struct OfRank {
    int32_t registered, removing;  // negative: none
  };
  struct Report {
    bool error;
    std::string text;
  };

  explicit SetChanges(Limits limits) : limits_(limits) {}

  // A round, by rank.
  std::optional<Report> Follow(const std::vector<OfRank>& ranks, int64_t now_ns);

 private:
  Limits limits_;
  std::optional<int64_t> since_ns_;  // none: agreed
  int64_t warned_ns_ = 0;            // the last warning
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_COORDINATION_SET_CHANGES_H
