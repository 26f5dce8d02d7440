// Interface for sums over the ranks of a process set, for messages outside Horovod's operations.

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

// Background thread. All ranks make the same calls in the same order. Calls from Begin to Finish are made after all
// messages of a round have been performed or begun; other calls are allowed between any two messages.
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

  // Returns true if these ranks are connected by a transport.
  virtual bool Supports(common::ProcessSet& process_set) const = 0;
  // Timeout of the transport: the longest wait of a rank without progress.
  virtual std::chrono::nanoseconds Limit(common::ProcessSet& process_set) const = 0;
  // Returns true if this tensor is sent without a lossy codec, which would keep a residual.
  virtual bool Exact(const std::string& name, int64_t bytes) const = 0;

  // From now on, messages with these names use the fastest collective of ours instead of Horovod's (GoFastest), or the
  // chosen collective again (GoAsChosen).
  virtual void GoFastest(int32_t process_set_id, const std::unordered_set<std::string>& names) = 0;
  virtual void GoAsChosen(int32_t process_set_id, const std::unordered_set<std::string>& names) = 0;

  // All following functions throw std::runtime_error if a rank is lost or does not answer within the timeout of the
  // transport. The world has failed then, and the memory is not accessed any more.

  // Begins a sum in place, with the chosen collective, or else with the fastest collective of ours. Any number of
  // messages may be in flight. A message is in flight until `done` is called, in Begin or Progress. `followed`: true if
  // other messages are known to follow. `name`: description for error texts.
  virtual void Begin(common::ProcessSet& process_set, int32_t process_set_id, const Values& values, bool followed,
                     const std::string& name, std::function<void()> done) = 0;
  // Continues messages in flight. Returns after an event, after Wake, or at `until`.
  virtual void Progress(std::chrono::steady_clock::time_point until) = 0;
  // Any thread: ends the running call of Progress, or the next one.
  virtual void Wake() = 0;
  // Returns true if messages are in flight: messages of Begin, or other messages of ours begun in this round.
  virtual bool InFlight() const = 0;
  // Waits for all messages in flight. All ranks call it, also between two messages of a round. Other messages of ours
  // that cannot be finished fail with the reason, and messages begun after them throw.
  virtual void Settle() = 0;
  // As Settle; no message follows in this round.
  virtual void Finish(common::ProcessSet& process_set) = 0;
  // The caller has failed: messages in flight end with this error. Their memory is not accessed any more, and their
  // `done` is not called.
  virtual void Fail(const std::exception& error) = 0;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_MESSAGE_REDUCER_H
