// Requests of ranks, as they come to the coordinator of a process set, made into messages about partial rounds.

#ifndef PACELINE_BRIDGE_PARTIAL_COORDINATOR_H
#define PACELINE_BRIDGE_PARTIAL_COORDINATOR_H

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bridge/partial/rounds.h"
#include "core/partial/round_coordinator.h"

namespace horovod::paceline {

// Background thread only. Other ranks have none: they keep one that nobody tells anything.
class PartialCoordinator {
 public:
  using Find = std::function<std::shared_ptr<PartialChannel>(const std::string& name)>;

  // `size`: ranks of the process set. `find`: this rank's channel of a name, or null before its first call.
  PartialCoordinator(int32_t size, Find find) : find_(std::move(find)), rounds_(size) {}

  // Whether this request is one of ours. Then it was counted, and Ready() decides.
  bool Counts(const common::Request& request);
  // Whether Horovod's own count does not decide about this name.
  bool Has(const std::string& name) const { return rounds_.Knows(name) || early_.count(name) > 0; }
  void TakeNote(const common::Request& note);
  std::vector<std::string> Ready(const ::paceline::core::RoundCoordinator::GroupOf& group_of, int64_t now_ns) {
    return rounds_.Ready(group_of, now_ns);
  }
  bool waiting() const { return rounds_.waiting(); }
  bool StandsStill(int64_t now_ns) { return rounds_.StandsStill(now_ns); }
  const std::vector<::paceline::core::Standstill::Name>& begun_by_standstill() const {
    return rounds_.begun_by_standstill();
  }
  std::shared_ptr<const ::paceline::core::Lateness> lateness() const { return rounds_.lateness(); }
  // A rank that was late in most of the last rounds, once.
  std::optional<::paceline::core::Lateness::Straggler> Straggler(int64_t now_ns) { return rounds_.Straggler(now_ns); }
  // The response is on its way to all ranks.
  void Sent(const common::Response& response, const std::string& name);
  // What all ranks are to be told in place of Horovod's error about this name; empty: nothing else.
  std::string Error(const std::string& name) const;

 private:
  void Take(const std::string& name, const common::Request& request, int64_t round);

  const Find find_;
  ::paceline::core::RoundCoordinator rounds_;
  std::map<std::string, std::vector<common::Request>> early_;  // votes under names that this rank has not called yet
  // By name, the first from a rank that handed in another shape or type than in the rounds before.
  std::unordered_map<std::string, common::Request> misfits_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PARTIAL_COORDINATOR_H
