// Merging by plan in all process sets of one library, and what Python asks of it.

#ifndef PACELINE_BRIDGE_FUSION_MERGING_H
#define PACELINE_BRIDGE_FUSION_MERGING_H

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bridge/by_name.h"
#include "bridge/fusion/merger.h"
#include "bridge/message_plan.h"
#include "bridge/participant.h"

namespace horovod::paceline {

class Merging : public Participant, public MessagePlan {
 public:
  // Whether tensors of this name wait for each other somewhere else, so that none is to be held back here.
  using WaitsElsewhere = std::function<bool(int32_t process_set_id, const std::string& name)>;

  Merging(WaitsElsewhere waits_elsewhere, MessageReducer& reducer)
      : waits_elsewhere_(std::move(waits_elsewhere)), reducer_(reducer) {}

  // Any thread: the policy that this process wants, as a number that says whether two are the same; 0: Horovod's own
  // merging. Holds in all worlds.
  void Want(double policy);
  // Any thread: whether this process wants armed steps. Holds in all worlds.
  void WantArmed(bool armed) { wanted_.armed = armed; }
  // Any thread: the merger of this process set, or null.
  std::shared_ptr<Merger> Find(int32_t process_set_id) const { return mergers_.Find(process_set_id, {}); }
  // Any thread: the process sets that have one.
  std::vector<int32_t> Ids() const;

  // A new world: everything is as at the beginning, except for the policy asked for.
  void BeginWorld() override;
  void EndProcessSet(int32_t process_set_id) override { mergers_.EraseSet(process_set_id); }
  void Arrived(const std::vector<std::shared_ptr<common::Tensor>>& tensors, const std::vector<std::string>& names,
               int32_t process_set_id) override;
  void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) override;
  void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) override {
    current_->Popped(process_set, messages);
  }
  Clock::duration SleepLimit() override;
  bool OverrideReady(const common::Request& request, int count, bool ready) override;
  void Fuse(common::Controller& controller, std::deque<common::Response>& responses,
            common::ResponseList& list) override {
    current_->Fuse(controller, responses, list);
  }
  bool Cacheable(const common::Response& response) override;
  void BeforeExecute(common::ProcessSet& process_set, const common::Response& response) override {
    current_->BeforeExecute(process_set, response);
  }
  void AfterExecute(const Executed& executed) override { current_->AfterExecute(executed); }
  void Performed(const Executed& executed) override { current_->Performed(executed); }
  void RoundPerformed(common::ProcessSet& /*process_set*/) override { current_->RoundEnded(); }

  const ::paceline::core::MergeGroup* GroupOf(const std::string& name) const override {
    return current_->GroupOf(name);
  }
  int32_t GroupNumberOf(const std::string& name) const override { return current_->GroupNumberOf(name); }
  int32_t PartsOf(const std::string& name) const override { return current_->PartsOf(name); }
  Followed followed() const override { return current_->followed(); }
  int64_t LimitBytes(common::Controller& controller) const override { return current_->LimitBytes(controller); }

 private:
  const WaitsElsewhere waits_elsewhere_;
  MessageReducer& reducer_;
  Wanted wanted_;
  std::atomic<bool> watched_{false};  // some process set of this world watches arrivals, or did
  int64_t made_ = 0;                  // background thread only, and so is the next
  std::shared_ptr<Merger> current_;   // of the process set whose coordination round is running
  ByName<Merger> mergers_;            // one in each set, under no name
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_FUSION_MERGING_H
