// Transport over the connections of a Gloo context. No others are made, and no ports are opened.

#ifndef PACELINE_BRIDGE_TRANSPORT_GLOO_TRANSPORT_H
#define PACELINE_BRIDGE_TRANSPORT_GLOO_TRANSPORT_H

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "bridge/transport.h"
#include "gloo/context.h"
#include "gloo/transport/unbound_buffer.h"

namespace horovod::paceline {

class GlooTransport : public Transport {
 public:
  explicit GlooTransport(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}
  ~GlooTransport() override;
  GlooTransport(const GlooTransport&) = delete;
  GlooTransport& operator=(const GlooTransport&) = delete;
  GlooTransport(GlooTransport&&) = delete;
  GlooTransport& operator=(GlooTransport&&) = delete;

  int32_t rank() const override { return context_->rank; }
  int32_t size() const override { return context_->size; }
  std::chrono::milliseconds limit() const override { return context_->getTimeout(); }

  uint64_t Send(int32_t peer, uint64_t tag, const void* data, size_t bytes) override;
  uint64_t Receive(int32_t peer, uint64_t tag, void* data, size_t bytes) override;
  bool Wait(Clock::time_point until, Completion& completion) override;
  void GiveUp() override;

 private:
  using Buffer = gloo::transport::UnboundBuffer;

  // A Gloo buffer for one operation. It tells Told, in a thread of Gloo's or in this one.
  Buffer& Make(uint64_t operation, void* data, size_t bytes);
  void Told(uint64_t operation, const std::exception_ptr& error);

  const std::shared_ptr<gloo::Context> context_;
  uint64_t made_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Buffer>> in_flight_;
  std::mutex mutex_;  // protects told_
  std::condition_variable changed_;
  std::deque<Completion> told_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_TRANSPORT_GLOO_TRANSPORT_H
