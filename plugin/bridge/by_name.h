// What there is under the names of process sets.

#ifndef PACELINE_BRIDGE_BY_NAME_H
#define PACELINE_BRIDGE_BY_NAME_H

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace horovod::paceline {

// Things of one kind by process set and name. Any thread. What was found lives on with whoever holds it.
template <typename T>
class ByName {
 public:
  using Found = std::shared_ptr<T>;

  // False as long as there was nothing since Reset, in any set. Costs no lock, nor do look-ups as long as it is false.
  bool used() const { return used_.load(std::memory_order_relaxed); }

  // Null if there is none.
  Found Find(int32_t process_set_id, const std::string& name) const {
    if (!used()) {
      return nullptr;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    const auto set = sets_.find(process_set_id);
    return set == sets_.end() ? nullptr : In(set->second, name);
  }

  // What there is, or what `make()` returns; if that is null, there is nothing then either. Whoever looks the name up
  // waits until it is made: `make` must not look into this registry.
  template <typename Make>
  Found FindOr(int32_t process_set_id, const std::string& name, Make&& make) {
    std::lock_guard<std::mutex> lock(mutex_);
    used_.store(true, std::memory_order_relaxed);
    auto& names = sets_[process_set_id];
    if (Found known = In(names, name)) {
      return known;
    }
    Found made = make();
    if (made != nullptr) {
      names.emplace(name, made);
    }
    return made;
  }

  // In place of what there is.
  void Put(int32_t process_set_id, const std::string& name, Found one) {
    std::lock_guard<std::mutex> lock(mutex_);
    used_.store(true, std::memory_order_relaxed);
    sets_[process_set_id][name] = std::move(one);
  }

  // Leaves nothing there; what there was, or null.
  Found Take(int32_t process_set_id, const std::string& name) {
    if (!used()) {
      return nullptr;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    const auto set = sets_.find(process_set_id);
    if (set == sets_.end()) {
      return nullptr;
    }
    Found taken = In(set->second, name);
    set->second.erase(name);
    return taken;
  }

  void EraseSet(int32_t process_set_id) {
    std::lock_guard<std::mutex> lock(mutex_);
    sets_.erase(process_set_id);
  }

  // Of all sets, or of one.
  std::vector<Found> All() const {
    std::vector<Found> all;
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& set : sets_) {
      for (const auto& one : set.second) {
        all.push_back(one.second);
      }
    }
    return all;
  }
  std::vector<Found> All(int32_t process_set_id) const {
    std::vector<Found> all;
    std::lock_guard<std::mutex> lock(mutex_);
    const auto set = sets_.find(process_set_id);
    if (set != sets_.end()) {
      for (const auto& one : set->second) {
        all.push_back(one.second);
      }
    }
    return all;
  }

  // Nothing is there any more.
  void Reset() {
    std::lock_guard<std::mutex> lock(mutex_);
    sets_.clear();
    used_.store(false, std::memory_order_relaxed);
  }

 private:
  using Names = std::unordered_map<std::string, Found>;

  static Found In(const Names& names, const std::string& name) {
    const auto found = names.find(name);
    return found == names.end() ? nullptr : found->second;
  }

  // Whether there may be anything. Relaxed: whoever may look a name up has synchronised with the call that put it in,
  // or is not the one that has to find it.
  std::atomic<bool> used_{false};
  mutable std::mutex mutex_;  // protects the map
  std::map<int32_t, Names> sets_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_BY_NAME_H
