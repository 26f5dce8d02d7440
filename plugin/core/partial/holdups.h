// What keeps one rank from its next call: its operations that have not been answered, in all process sets.

#ifndef PACELINE_CORE_PARTIAL_HOLDUPS_H
#define PACELINE_CORE_PARTIAL_HOLDUPS_H

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>

namespace paceline::core {

// A rank is absent from a process set if something that is no partial call *of this set* has held it up for longer than
// the timeout: a full operation of any set, the first round of a name, which waits for all ranks too, or a partial call
// of another set. Then no partial round of the set waits for the rank (votes.h). Other partial calls of the set itself
// are votes, which its coordinator counts.
//
// A rank that is in several process sets has one of these: what holds it up in one holds it up in all. One thread.
class Holdups {
 public:
  explicit Holdups(int64_t timeout_ns) : timeout_ns_(timeout_ns) {}

  // An operation was handed in. Again, while it is not ended: as if only the first time.
  void Began(int32_t set, const std::string& name, bool partial, int64_t now_ns);
  // It was answered. Names that are not known are left alone.
  void Ended(int32_t set, const std::string& name);
  // This process set is no more: its id may be given to another one.
  void Forget(int32_t set) { sets_.erase(set); }

  bool Absent(int32_t set, int64_t now_ns) const;
  // Whether nothing holds it up, so that time changes nothing.
  bool none() const;

 private:
  // Operations of one kind in one set.
  class Open {
   public:
    void Began(const std::string& name, int64_t now_ns);
    void Ended(const std::string& name);
    bool none() const { return since_ns_.empty(); }
    // For how long the oldest one has lasted; 0 if there is none.
    int64_t Oldest(int64_t now_ns) const { return since_ns_.empty() ? 0 : now_ns - since_ns_.front(); }

   private:
    std::list<int64_t> since_ns_;  // in the order of their beginnings
    std::unordered_map<std::string, std::list<int64_t>::iterator> by_name_;
  };
  struct Set {
    Open full, partial;
  };

  int64_t timeout_ns_;
  std::map<int32_t, Set> sets_;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_PARTIAL_HOLDUPS_H
