// What ranks know of each other when one of them leaves the world in order: at the end of its script, say.

#ifndef PACELINE_BRIDGE_LEAVING_LEAVING_H
#define PACELINE_BRIDGE_LEAVING_LEAVING_H

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "bridge/joined.h"
#include "bridge/participant.h"

namespace horovod::paceline {

// One rank, as it answered.
struct Standing {
  bool through = false;  // it leaves as soon as all are through
  bool waits = false;    // it waits for an operation of all ranks
  int64_t updates = 0;   // that it has made with a partial exchange
};

// A rank that leaves asks how all ranks stand: one operation, ready when one rank has asked for it, in which the
// background threads of all ranks answer, whatever their training is busy with. All ranks hear the answers.
class Leaving : public Participant {
 public:
  // `updates`: of this rank. `partial(name)`: whether rounds of this name go on without this rank. Background thread.
  Leaving(std::function<int64_t()> updates, std::function<bool(const std::string& name)> partial)
      : updates_(std::move(updates)), partial_(std::move(partial)) {}

  // Any thread: this rank is through.
  void Through();
  // Any thread: ask; the number of the question.
  int64_t Ask();
  // Any thread: the number of the last question of this rank that was answered, and how all ranks stood then, or when
  // another rank asked since.
  int64_t Heard(std::vector<Standing>& ranks) const;
  // Any thread: nobody answers any more.
  bool ended() const { return ended_; }

  void BeginWorld() override;
  void End() override { ended_ = true; }
  void Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) override;
  void Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) override;
  bool OverrideReady(const common::Request& request, int count, bool ready) override;
  void Fuse(common::Controller& controller, std::deque<common::Response>& responses,
            common::ResponseList& list) override;
  bool Cacheable(const common::Response& response) override;
  void BeforeExecute(common::ProcessSet& process_set, const common::Response& response) override;
  void AfterExecute(const Executed& executed) override;
  void Performed(const Executed& executed) override;

 private:
  Standing Own(common::ProcessSet& process_set) const;

  const std::function<int64_t()> updates_;
  const std::function<bool(const std::string& name)> partial_;
  std::atomic<bool> through_{false}, ended_{false};
  // Background thread only.
  int32_t current_ = 0;
  Joined joined_;

  mutable std::mutex mutex_;  // protects everything below
  int64_t asked_ = 0, sent_ = 0, answered_ = 0;
  std::vector<Standing> ranks_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_LEAVING_LEAVING_H
