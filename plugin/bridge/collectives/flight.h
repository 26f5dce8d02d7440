// The messages of one process set that are under way together.

#ifndef PACELINE_BRIDGE_COLLECTIVES_FLIGHT_H
#define PACELINE_BRIDGE_COLLECTIVES_FLIGHT_H

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bridge/collectives/engine.h"
#include "bridge/collectives/memory.h"
#include "bridge/collectives/message.h"
#include "bridge/transport.h"
#include "bridge/world_end.h"

namespace horovod::paceline {

// Memory that messages of several tensors are packed in; kept from one flight to the next. Background thread only.
class PackingSpace {
 public:
  // Null: does not fit beside what is taken. Throws std::bad_alloc.
  Room Take(int64_t bytes);
  // Its largest size for messages that are sent together; a single one gets what it needs.
  void Limit(int64_t bytes) { limit_bytes_ = bytes; }

 private:
  Memory memory_;
  int64_t size_bytes_ = 0, taken_bytes_ = 0, limit_bytes_ = 0;
  int64_t rooms_ = 0;  // that are taken
};

// Background thread only.
class Flight {
 public:
  Flight(std::unique_ptr<Transport> transport, PackingSpace& space, const WorldEnd& end)
      : space_(space), end_(end), engine_(std::make_unique<Engine>(*transport)), transport_(std::move(transport)) {}

  bool failed() const { return transport_ == nullptr; }
  // No message may be under way for what is done with it directly: Finish() first.
  Transport& transport() { return *transport_; }

  // Room to pack a message of several tensors. Where there is none, what is under way is finished first.
  Room MakeRoom(int64_t bytes);
  // A message whose parts follow: it is failed if they cannot be finished.
  void Add(std::shared_ptr<Message> message) { messages_.push_back(std::move(message)); }
  void Begin(Collective collective) { engine_->Begin(std::move(collective)); }
  // No collective is under way, whether it is part of such a message or not.
  bool idle() const { return engine_ == nullptr || engine_->idle(); }
  // Throws as Engine::Progress.
  void Progress(Transport::Clock::time_point until) { engine_->Progress(until); }

  // Waits for all of them; false where they failed, with all that are left told why. Connections are closed then.
  bool Finish();
  // It cannot go on, maybe because of another rank, and no rank must wait for it. Messages under way are told why.
  void Fail(const std::exception& error);
  // The same because of this rank, whose connections stay until all have heard the reason.
  void FailHere(const std::exception& error);

 private:
  void End();
  void FailMessages(const std::string& why);

  PackingSpace& space_;
  const WorldEnd& end_;
  // Destroyed from the last to the first: the transport touches memory of the engine and of tensors until it has ended.
  std::vector<std::shared_ptr<Message>> messages_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_FLIGHT_H
