// Which rounds of partial collectives are ready: what the coordinator of a process set counts.

#ifndef PACELINE_BRIDGE_PARTIAL_COORDINATOR_H
#define PACELINE_BRIDGE_PARTIAL_COORDINATOR_H

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bridge/fusion/packing.h"
#include "bridge/partial/rounds.h"
#include "core/partial/votes.h"

namespace horovod {
namespace paceline {

// Background thread only. Other ranks have none: they keep one that nobody tells anything.
class PartialCoordinator {
 public:
  using Find = std::function<std::shared_ptr<PartialChannel>(const std::string& name)>;
  // Those that go together with this one, itself among them; null if it goes alone.
  using Group = std::function<const MergeGroup*(const std::string& name)>;

  // `size`: ranks of the process set. `find`: this rank's channel of a name, or null before its first call.
  PartialCoordinator(int32_t size, Find find)
      : find_(std::move(find)), unanswered_(static_cast<size_t>(size), 0), attendance_(size) {}

  // Whether this request is one of ours. Then it was counted, and Ready() decides.
  bool Counts(const common::Request& request);
  // Whether Horovod's own count does not decide about this name.
  bool Has(const std::string& name) const { return counts_.count(name) + early_.count(name) > 0; }
  void Noted(const common::Request& note);
  // What became ready. Names that go together wait for each other for as long as their group's patience.
  std::vector<std::string> Ready(const Group& group, int64_t now_ns);
  // Whether Ready() is to be asked again though nothing comes: names wait for others of their group.
  bool waiting() const { return waiting_; }
  // The response is on its way to all ranks; the round is over for this count.
  void Sent(const common::Response& response, const std::string& name);
  // What all ranks are to be told in place of Horovod's error about this name; empty: nothing else.
  std::string Error(const std::string& name) const;

 private:
  struct Count {
    Count(std::string of, int32_t size, ::paceline::core::QuorumRule rule) : name(std::move(of)), votes(size, rule) {}

    const std::string name;
    ::paceline::core::Votes votes;
    bool open = false;  // in open_
    bool announced = false;
    int64_t ready_ns = 0;  // since when; 0: it is not
    int32_t requests = 0;  // in Horovod's table, of the right shape
    // From a rank that handed in another shape or type than in the rounds before.
    std::vector<common::Request> misfits;
  };

  int32_t size() const { return static_cast<int32_t>(unanswered_.size()); }
  static bool Complete(const Count& count);
  bool Held(const MergeGroup& group) const;
  void Take(Count& count, const common::Request& request, int64_t round);

  const Find find_;
  bool waiting_ = false;
  std::vector<int32_t> unanswered_;  // by rank: votes whose rounds were not sent
  ::paceline::core::Attendance attendance_;
  std::unordered_map<std::string, Count> counts_;
  // Those whose round under way somebody has called in: no others can become ready.
  std::vector<Count*> open_;
  std::map<std::string, std::vector<common::Request>> early_;  // votes under names that this rank has not called yet
};

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_PARTIAL_COORDINATOR_H
