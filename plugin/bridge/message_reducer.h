// Sums over the ranks of a process set, for whoever makes messages of its own outside of Horovod's operations.

#ifndef PACELINE_BRIDGE_MESSAGE_REDUCER_H
#define PACELINE_BRIDGE_MESSAGE_REDUCER_H

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <unordered_set>

#include "bridge/half.h"
#include "core/codecs/data_type.h"
#include "horovod/common/process_set.h"

namespace horovod::paceline {

// Background thread. The same calls in the same order on all ranks; those of Begin to Finish when all messages of a
// round have been performed or begun, the others between any two of them.
class MessageReducer {
 public:
  MessageReducer() = default;
  MessageReducer(const MessageReducer&) = delete;
  MessageReducer& operator=(const MessageReducer&) = delete;
  MessageReducer(MessageReducer&&) = delete;
  MessageReducer& operator=(MessageReducer&&) = delete;
  virtual ~MessageReducer() = default;

  struct Values {
    ::paceline::core::DataType dtype = ::paceline::core::DataType::kFloat32;
    uint8_t* data = nullptr;
    int64_t elements = 0;
    uint32_t tensors = 0;  // their digest (core::TensorsDigest)
    Half half = Half::kBoth;
  };

  // Whether there is a way among these ranks.
  virtual bool Supports(common::ProcessSet& process_set) const = 0;
  // How long a rank waits there while nothing moves.
  virtual std::chrono::nanoseconds Limit(common::ProcessSet& process_set) const = 0;
  // Whether this tensor is to travel as it is: codecs lose something, and remember it.
  virtual bool Exact(const std::string& name, int64_t bytes) const = 0;

  // Messages that would go by Horovod's own collectives go by the fastest of ours from now on, those of these names;
  // and as it was chosen again.
  virtual void GoFastest(int32_t process_set_id, const std::unordered_set<std::string>& names) = 0;
  virtual void GoAsChosen(int32_t process_set_id, const std::unordered_set<std::string>& names) = 0;

  // All throw std::runtime_error when a rank is lost or does not come within the limit of the transport; the world has
  // failed then, and nobody touches the memory any more.

  // Adds up in place, by the collective that was chosen, or else by the one that is the fastest of ours. Any number of
  // messages are under way together, until `done` is called, in Begin or Progress. `followed`: others come
  // behind it, as far as is known. `name` says what it is in errors.
  virtual void Begin(common::ProcessSet& process_set, int32_t process_set_id, const Values& values, bool followed,
                     const std::string& name, std::function<void()> done) = 0;
  // Goes on with what is under way: returns when something has happened, when it is woken, or at `until`.
  virtual void Progress(std::chrono::steady_clock::time_point until) = 0;
  // Any thread: ends the Progress under way, or the next one.
  virtual void Wake() = 0;
  // Whether anything is under way: messages of Begin, or others of ours that this round has begun.
  virtual bool InFlight() const = 0;
  // Waits for all that is under way; all ranks come here, also between two messages of a round. Others of ours that
  // cannot be finished are told why, and what begins after them throws.
  virtual void Settle() = 0;
  // The same, and no message follows in this round.
  virtual void Finish(common::ProcessSet& process_set) = 0;
  // The caller cannot go on: what is in flight ends with this error, and nobody touches its memory or calls its `done`.
  virtual void Fail(const std::exception& error) = 0;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_MESSAGE_REDUCER_H
