// Our own collectives, in front of Horovod's.

#ifndef PACELINE_BRIDGE_COLLECTIVES_COLLECTIVES_H
#define PACELINE_BRIDGE_COLLECTIVES_COLLECTIVES_H

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "bridge/participant.h"
#include "bridge/transport.h"

namespace horovod::paceline {

// What a user chooses, the same on all ranks.
struct CollectiveChoice {
  static constexpr int32_t kHorovods = -1;

  int32_t method = kHorovods;  // a core::AllreduceMethod, or Horovod's own collectives
  int64_t block_bytes = 0;     // what travels at a time
};

class Collectives : public Participant {
 public:
  // A transport among the ranks of a process set, made for one message; null where there is none.
  using MakeTransport = std::function<std::unique_ptr<Transport>(common::ProcessSet&)>;

  explicit Collectives(MakeTransport make) : make_(std::move(make)) {}

  // Any thread.
  static void Choose(const CollectiveChoice& choice);
  static CollectiveChoice Chosen();

  void BeginWorld() override { sequences_.clear(); }
  void NewProcessSet(int32_t process_set_id) override;
  void AddOperations(common::HorovodGlobalState& state, std::vector<std::shared_ptr<common::AllreduceOp>>& allreduces,
                     std::vector<std::shared_ptr<common::BroadcastOp>>& broadcasts) override;

  // Background thread: whether the ranks of this set have a transport, and one for the next message.
  bool Reaches(common::ProcessSet& process_set) const { return make_(process_set) != nullptr; }
  std::unique_ptr<Transport> Make(common::ProcessSet& process_set) const { return make_(process_set); }
  uint32_t Next(int32_t process_set_id);

 private:
  const MakeTransport make_;
  std::mutex mutex_;  // protects sequences_: process sets are registered in threads of frameworks
  std::map<int32_t, uint32_t> sequences_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_COLLECTIVES_H
