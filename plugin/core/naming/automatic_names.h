// Names for operations that their caller did not name, equal on all ranks.

#ifndef PACELINE_CORE_NAMING_AUTOMATIC_NAMES_H
#define PACELINE_CORE_NAMING_AUTOMATIC_NAMES_H

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace paceline::core {

// Ranks agree on the name of an unnamed operation only if each counts the same things. What the ranks of a process set
// do equally often is: unnamed operations of one kind on this set, between two points at which all of them meet. So
// there is one count per set and kind, and an epoch of the set that advances at every such meeting (initialisation, a
// finished join). Named operations, which may be uneven, and those on other sets, which may have other members, count
// nothing. Names of different sets may be the same: each set has a table of its own. Methods may be called from any
// thread.
class AutomaticNames {
 public:
  // "<kind>.noname.<epoch>.<n>" with n = 0, 1, ... within the epoch.
  std::string Next(const std::string& kind, int32_t process_set_id);
  // Whether it is a name of Next(), which comes once in a world: nothing may be kept under it.
  static bool Made(const std::string& name);
  // All ranks of the set have met and operations before this have been answered: start a new epoch.
  void AdvanceEpoch(int32_t process_set_id);
  // The set has ended: the next one with this id, of whose members some may have been in it, begins with epoch 0.
  void Forget(int32_t process_set_id);
  // A new world begins: epoch 0 everywhere.
  void Reset();

 private:
  struct Counts {
    int64_t epoch = 0;
    std::unordered_map<std::string, int64_t> of_kind;
  };

  std::mutex mutex_;  // protects everything below
  std::unordered_map<int32_t, Counts> of_set_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_NAMING_AUTOMATIC_NAMES_H
