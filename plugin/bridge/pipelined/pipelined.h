// The pipelined exchange of one library: which calls have an answer, by process set and name.

#ifndef PACELINE_BRIDGE_PIPELINED_PIPELINED_H
#define PACELINE_BRIDGE_PIPELINED_PIPELINED_H

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bridge/exchange.h"
#include "bridge/joins.h"
#include "bridge/message_plan.h"
#include "bridge/pipelined/channel.h"

namespace horovod::paceline {

// What a name is registered with: two numbers.
struct PipelinedSettings : ExchangeSettings {
  int32_t k = 2;           // the iteration dependency
  int64_t sync_calls = 0;  // so many calls of the name are plain allreduces first, in each world
};

// The exchange "pipelined". Methods without a note are called in any thread.
class Pipelined : public Exchange {
 public:
  // Whether another exchange packs the messages of a tensor.
  using Special = std::function<bool(int32_t process_set_id, const std::string& name)>;

  Pipelined(Operations& operations, const MessagePlan& plan, Special special)
      : operations_(operations), plan_(plan), special_(std::move(special)) {}

  // The channel of a name that is registered as pipelined; null if it is not.
  std::shared_ptr<Channel> Registered(int32_t process_set_id, const std::string& name);
  // Null if there was no call of this name, and nothing put there.
  std::shared_ptr<Channel> Find(int32_t process_set_id, const std::string& name) const {
    return operations_.Kept<Channel>(process_set_id, name);
  }
  // Waits, for so long in all, until nothing is in flight under any name; whether that is so.
  bool Settle(double limit_s) const;
  // As if no call of this name had been made.
  void Drop(int32_t process_set_id, const std::string& name);

  const char* word() const override { return "pipelined"; }
  std::string Title(const std::string& name) const override { return "Pipelined exchange of " + name; }
  std::shared_ptr<const ExchangeSettings> Parse(const std::vector<double>& settings,
                                                std::string& expected) const override;
  bool Takes(Operation& operation, const ExchangeSettings& settings) override;
  common::Status Call(ExchangeCall call) override;
  bool Has(const Operation& operation) const override { return operation.Kept<Channel>() != nullptr; }
  void Unregistered(Operation& operation) override;

  // What was in flight is gone.
  void BeginWorld() override;
  void EndProcessSet(int32_t process_set_id) override;
  void Cycle(common::HorovodGlobalState& /*state*/, common::ProcessSet& /*process_set*/,
             int32_t process_set_id) override {
    current_ = process_set_id;
  }
  // Holds hvd.join() back until this rank's gradients in flight have arrived: of a joined rank Horovod takes zeros.
  void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) override;
  Clock::duration SleepLimit() override { return held_.SleepLimit(); }
  // In a process set with pipelined tensors, large tensors go alone unless a plan merges them: gradients in flight cost
  // a copy of the model already, and a fusion buffer would be another.
  void Fuse(common::Controller& controller, std::deque<common::Response>& responses,
            common::ResponseList& list) override;
  void AfterExecute(const Executed& executed) override;

 private:
  // Null where another exchange keeps something.
  std::shared_ptr<Channel> Of(Operation& operation, const ExchangeSettings& settings);

  // Ranks pack cached tensors without asking each other, also those that have joined and registered nothing. So each
  // rank announces the first pipelined call of a process set in a small operation. It ends at the same place in the
  // order of messages on all ranks, and from there on all ranks pack alike. It precedes the gradients that a join waits
  // for, so no rank joins before all others have announced.
  void Announce(int32_t process_set_id);
  bool GoesAlone(const common::Response& response) const;

  Operations& operations_;

  std::mutex announcing_;        // protects the next line
  std::set<int32_t> announced_;  // process sets, in this world

  // Background thread only.
  const MessagePlan& plan_;
  const Special special_;
  int32_t current_ = 0;
  std::set<int32_t> pipelined_;  // process sets in which the announcement has ended
  HeldJoins held_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PIPELINED_PIPELINED_H
