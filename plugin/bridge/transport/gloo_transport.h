// Transport over the connections of a Gloo context. No others are made, and no ports are opened.
//
// Several may use one context, each in a thread of its own, if their messages are of different kinds. Where a tag is
// used again while messages with it are in flight, they are received in the order in which they were sent. While one
// thread sends and receives, another one may wait.

#ifndef PACELINE_BRIDGE_TRANSPORT_GLOO_TRANSPORT_H
#define PACELINE_BRIDGE_TRANSPORT_GLOO_TRANSPORT_H

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bridge/transport.h"
#include "gloo/context.h"
#include "gloo/transport/unbound_buffer.h"

namespace horovod::paceline {

class GlooTransport : public Transport {
 public:
  // Whose messages they are: the highest byte of Gloo's tags. Gloo's own collectives have small numbers there
  // (gloo/types.h), and the hook `lengths` knows those that must be as long as expected by the highest four bits:
  // messages of coordination may be shorter.
  enum class Kind : uint8_t { kCollectives = 0x70, kStages = 0x71, kRounds = 0x60, kControlMessages = 0x61 };
  // An operation has completed or failed. By any thread, which may have a lock of Gloo's.
  using Ring = std::function<void()>;

  GlooTransport(std::shared_ptr<gloo::Context> context, Kind kind, Ring ring = nullptr)
      : context_(std::move(context)), kind_(uint64_t{static_cast<uint8_t>(kind)} << 56U), ring_(std::move(ring)) {}
  ~GlooTransport() override;

  int32_t rank() const override { return context_->rank; }
  int32_t size() const override { return context_->size; }
  std::chrono::milliseconds limit() const override { return context_->getTimeout(); }

  uint64_t Send(int32_t peer, uint64_t tag, const void* data, size_t bytes) override;
  uint64_t Receive(int32_t peer, uint64_t tag, void* data, size_t bytes) override;
  void Expect(uint64_t terms) override { terms_ = terms; }
  bool Wait(Clock::time_point until, Completion& completion) override;
  void Wake() override;
  bool wakes() const override { return true; }
  void Abort() override;
  void Leave() override;

 private:
  using Buffer = gloo::transport::UnboundBuffer;

  // Creates a Gloo buffer for one operation. It calls Completed at its end, in a thread of Gloo or in this one.
  std::shared_ptr<Buffer> Make(uint64_t operation, void* data, size_t bytes);
  void Completed(uint64_t operation, const std::exception_ptr& error);

  const std::shared_ptr<gloo::Context> context_;
  const uint64_t kind_;
  const Ring ring_;
  uint64_t made_ = 0;  // who sends and receives counts
  uint64_t terms_ = 0;
  std::mutex mutex_;  // protects what follows; buffers begin and end without it, since Gloo has locks of its own
  std::condition_variable changed_;
  std::unordered_map<uint64_t, std::shared_ptr<Buffer>> in_flight_;
  std::vector<std::shared_ptr<Buffer>> ended_;  // who sends or receives next lets go of them, not who waits
  bool woken_ = false;
  std::deque<Completion> completions_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_TRANSPORT_GLOO_TRANSPORT_H
