// Names for operations that their caller did not name, equal on all ranks.

#ifndef PACELINE_CORE_AUTOMATIC_NAMES_H
#define PACELINE_CORE_AUTOMATIC_NAMES_H

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace paceline::core {

// Ranks agree on the name of an unnamed operation only if each counts the same things. What all ranks do equally
// often is: unnamed operations of one kind, between two points at which all ranks meet. So there is one count per
// kind, and an epoch that advances at every such meeting (initialisation, a finished join). Named operations, which
// may be uneven, count nothing. Methods may be called from any thread.
class AutomaticNames {
 public:
  // "<kind>.noname.<epoch>.<n>" with n = 0, 1, ... within the epoch.
  std::string Next(const std::string& kind);
  // All ranks have met and operations before this have been answered: start a new epoch.
  void Meet();
  // A new world begins: epoch 0.
  void Reset();

 private:
  std::mutex mutex_;  // protects everything below
  int64_t epoch_ = 0;
  std::unordered_map<std::string, int64_t> counts_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_AUTOMATIC_NAMES_H
