// hvd.join() of this rank, held back until what it handed in before is through.

#ifndef PACELINE_BRIDGE_JOINS_H
#define PACELINE_BRIDGE_JOINS_H

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "bridge/participant.h"

namespace horovod::paceline {

// Joins that wait, by process set. Background thread only.
class HeldJoins {
 public:
  // Takes this rank's join out of these messages; puts it back, behind them, when `through` says so.
  void Filter(int32_t process_set_id, std::deque<common::Request>& messages, const std::function<bool()>& through);
  // What it waits for is looked at in rounds.
  Clock::duration SleepLimit() const { return joins_.empty() ? Clock::duration::max() : std::chrono::milliseconds(1); }
  void Forget() { joins_.clear(); }
  void Forget(int32_t process_set_id) { joins_.erase(process_set_id); }

 private:
  std::map<int32_t, common::Request> joins_;
};

// Horovod 0.28.1 counts a joined rank out and its requests in: an operation that it handed in before it joined and that
// others have not begun is ready when one of these is still missing. So the join goes last, behind this rank's own
// operations. Partial ones and ours do not wait for all ranks: `apart(process set, name)`.
class Joins : public Participant {
 public:
  explicit Joins(std::function<bool(int32_t process_set_id, const std::string& name)> apart)
      : apart_(std::move(apart)) {}

  void BeginWorld() override { held_.Forget(); }
  void EndProcessSet(int32_t process_set_id) override { held_.Forget(process_set_id); }
  void Cycle(common::HorovodGlobalState& /*state*/, common::ProcessSet& /*process_set*/,
             int32_t process_set_id) override {
    current_ = process_set_id;
  }
  void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) override;
  Clock::duration SleepLimit() override { return held_.SleepLimit(); }

 private:
  const std::function<bool(int32_t process_set_id, const std::string& name)> apart_;
  int32_t current_ = 0;
  HeldJoins held_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_JOINS_H
