// A message of Horovod's that our collectives carry: its tensors, and what becomes of them at its end.

#ifndef PACELINE_BRIDGE_COLLECTIVES_MESSAGE_H
#define PACELINE_BRIDGE_COLLECTIVES_MESSAGE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bridge/collectives/memory.h"
#include "bridge/participant.h"
#include "horovod/common/common.h"
#include "horovod/common/global_state.h"
#include "horovod/common/message.h"

namespace horovod::paceline {

// Horovod has begun to perform it and is told when it ends. Background thread only.
class Message {
 public:
  // Takes the tensors.
  Message(common::HorovodGlobalState& state, common::ProcessSet& process_set,
          std::vector<common::TensorTableEntry>& entries, common::Response response, const std::string& activity);
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  Message(Message&&) = delete;
  Message& operator=(Message&&) = delete;
  // Answers tensors that nobody answered: whoever waits for them must not wait for ever.
  ~Message();

  // Messages whose tensors were not answered yet, in this process.
  static int64_t Unanswered();

  std::vector<common::TensorTableEntry>& entries() { return entries_; }
  // What its tensors are packed in, until it has ended and is gone.
  void Keep(Room room) { room_ = std::move(room); }
  // So many collectives it is made of. It ends with the last of them.
  void Expect(size_t parts) { parts_ = parts; }
  void PartEnded();
  // With an error, unless it has ended.
  void Fail(const common::Status& status);

 private:
  void End(const common::Status& status);

  common::HorovodGlobalState& state_;
  common::ProcessSet& process_set_;
  const common::Response response_;
  const Clock::time_point start_;
  std::vector<common::TensorTableEntry> entries_;
  Room room_;
  size_t parts_ = 0;
  bool ended_ = false;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_MESSAGE_H
