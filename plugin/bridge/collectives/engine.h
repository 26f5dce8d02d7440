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

  // Its messages are on their way; none has to be met at once. Throws as Wire, with nothing begun. Where too much is in
  // flight, waits for those that were begun first, and throws as Finish. All ranks wait for the same ones: a rank that
  // went on without them might wait elsewhere for one that is still here.
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
    Active(Collective collective, uint64_t number, int64_t before_bytes)
        : about(std::move(collective)),
          number(number),
          before_bytes(before_bytes),
          wire(about),
          execution(about.schedule) {}

    Collective about;
    uint64_t number;       // in the order of Begin
    int64_t before_bytes;  // of all that were begun before
    Wire wire;
    ::paceline::core::CollectiveExecution execution;
  };
  struct Started {
    Active* active = nullptr;
    int32_t number = -1;  // of the operation
  };

  // From the oldest that is in flight on, and with one more of so many bytes.
  bool TooMuch(int64_t bytes) const;
  // Starts what may be started. If that was all of it, it is told of and gone.
  void Advance(Active& active);
  void Start(Active& active, int32_t number);
  [[noreturn]] void Fail(const std::string& why, bool found_here = false);
  std::string Waiting() const;
  std::string Differs(const Collective& about, int32_t peer, const Completion& completion) const;

  Transport& transport_;
  std::vector<std::unique_ptr<Active>> active_;  // in the order of Begin
  uint64_t begun_ = 0;
  int64_t begun_bytes_ = 0;
  std::unordered_map<uint64_t, Started> started_;  // by the transport's number
  Transport::Clock::time_point moved_{};           // something did, or somebody began to look
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_ENGINE_H
