// Messages between two ranks of a process set, over connections that Horovod has made.

#ifndef PACELINE_BRIDGE_TRANSPORT_H
#define PACELINE_BRIDGE_TRANSPORT_H

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace horovod::paceline {

// What became of an operation. `error` is empty if it is done.
struct Completion {
  uint64_t operation = 0;
  std::string error;
  bool of_here = false;              // an error that this end alone sees the reason of
  uint64_t expected = 0, found = 0;  // of a receive: terms that differ
};

// Any number of sends and receives may be in flight. A message of a sender goes to the receive with its tag, whichever
// of the two is posted first; data moves at once only if that is the receive. One thread at a time, unless a transport
// says more of itself.
//
// After a failed or aborted operation connections are closed: peers are notified, and all later operations fail.
class Transport {
 public:
  using Clock = std::chrono::steady_clock;

  // Tags of one transport: below this. The lowest kMessageBits count the messages between two ranks in one collective,
  // those above count collectives.
  static constexpr uint64_t kTags = uint64_t{1} << 56U;
  static constexpr uint32_t kMessageBits = 24;

  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  Transport(Transport&&) = delete;
  Transport& operator=(Transport&&) = delete;
  // Waits until nobody touches the memory of operations any more.
  virtual ~Transport() = default;

  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;
  // So many collectives may be in flight, counted from the oldest: more than the processor and the network need. The
  // same on all ranks.
  virtual uint64_t window() const { return 64; }
  // How long a rank waits while nothing moves: Horovod's own limit.
  virtual std::chrono::milliseconds limit() const = 0;

  // Return at once the number of the operation, from 1 on in the order of calls. `data` stays as it is, or untouched,
  // until the operation has completed. A pair of ranks uses a tag once in each direction as long as one with it is in
  // flight. Operations of no bytes complete, too.
  virtual uint64_t Send(int32_t peer, uint64_t tag, const void* data, size_t bytes) = 0;
  virtual uint64_t Receive(int32_t peer, uint64_t tag, void* data, size_t bytes) = 0;

  // What is sent and expected from here on, as a number that both ends must have alike: a receive that meets another
  // one fails. Transports that cannot tell, do nothing.
  virtual void Expect(uint64_t /*terms*/) {}

  // The next operation that has completed or failed, each once. False: none did by `until`.
  virtual bool Wait(Clock::time_point until, Completion& completion) = 0;

  // Any thread: ends a wait under way, or the next one, before its time. Where a transport cannot, it does nothing.
  virtual void Wake() {}
  virtual bool wakes() const { return false; }
  // As Wait, but not ended by Wake, which may have been meant for a wait before this one.
  bool WaitOn(Clock::time_point until, Completion& completion) {
    while (!Wait(until, completion)) {
      if (Clock::now() >= until) {
        return false;
      }
    }
    return true;
  }

  // Closes connections. Operations in flight fail.
  virtual void Abort() = 0;

  // Forgets operations in flight and keeps connections: no peer sends or receives with these tags any more.
  // Transports that cannot do this abort.
  virtual void Leave() { Abort(); }
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_TRANSPORT_H
