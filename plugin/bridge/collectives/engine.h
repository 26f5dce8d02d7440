// Carries out schedules of core/collectives over a transport; any number of messages are under way together.

#ifndef PACELINE_BRIDGE_COLLECTIVES_ENGINE_H
#define PACELINE_BRIDGE_COLLECTIVES_ENGINE_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "bridge/collectives/wire.h"
#include "bridge/transport.h"
#include "core/collectives/execution.h"

namespace horovod::paceline {

// One thread.
class Engine {
 public:
  explicit Engine(Transport& transport) : transport_(transport) {}

  // Its messages are on their way; none has to be met at once. Throws as Wire, with nothing begun.
  void Begin(Collective collective);
  // Returns when all that were begun have ended; each is told of (Collective::done) as soon as it has. Throws
  // std::runtime_error that names this rank, the peer and the collective, when a peer is lost or nothing has moved for
  // the transport's limit; the engine must outlive
  // the transport then.
  void Finish();
  // Goes on with what has completed, or completes by `until`, one operation of the transport's. False: none did. Throws
  // as Finish.
  bool Progress(Transport::Clock::time_point until);
  bool idle() const { return active_.empty(); }

 private:
  struct Active {
    explicit Active(Collective collective) : about(std::move(collective)), wire(about), execution(about.schedule) {}

    Collective about;
    Wire wire;
    ::paceline::core::CollectiveExecution execution;
  };
  struct Started {
    Active* active = nullptr;
    int32_t number = -1;  // of the operation
  };

  // Starts what may be started. If that was all of it, it is told of and gone.
  void Advance(Active& active);
  void Start(Active& active, int32_t number);
  [[noreturn]] void Fail(const std::string& why);
  std::string Waiting() const;
  std::string Differs(const Collective& about, int32_t peer, const Completion& completion) const;

  Transport& transport_;
  std::vector<std::unique_ptr<Active>> active_;
  std::unordered_map<uint64_t, Started> started_;  // by the transport's number
  Transport::Clock::time_point moved_{};           // something did, or somebody began to look
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_ENGINE_H
