// Sums over the ranks of a process set, for whoever makes messages of its own outside of Horovod's operations.

#ifndef PACELINE_BRIDGE_CARRIER_H
#define PACELINE_BRIDGE_CARRIER_H

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "core/codecs/data_type.h"
#include "horovod/common/process_set.h"

namespace horovod::paceline {

// Background thread, between rounds: no operation is under way. The same calls in the same order on all ranks.
class Carrier {
 public:
  Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;
  Carrier(Carrier&&) = delete;
  Carrier& operator=(Carrier&&) = delete;
  virtual ~Carrier() = default;

  struct Values {
    ::paceline::core::DataType dtype = ::paceline::core::DataType::kFloat32;
    uint8_t* data = nullptr;
    int64_t elements = 0;
  };

  // Whether there is a way among these ranks.
  virtual bool Carries(common::ProcessSet& process_set) const = 0;
  // Whether this tensor is to travel as it is: codecs lose something, and remember it.
  virtual bool Exact(int32_t process_set_id, const std::string& name, int64_t bytes) const = 0;
  // Counts what Exact depends on.
  virtual int64_t Choices() const = 0;

  // All throw std::runtime_error when a rank is lost or does not come within the limit of the transport; the world has
  // failed then, and nobody touches the memory any more.

  // Adds up in place, by the collective that was chosen, or else by the one that is the fastest of ours. Any number of
  // messages are under way together, until `done` is called, in Begin or Progress. `name` says what it is in errors.
  virtual void Begin(common::ProcessSet& process_set, int32_t process_set_id, const Values& values,
                     const std::string& name, std::function<void()> done) = 0;
  // Goes on with what is under way: returns when something has happened, when it is woken, or at `until`.
  virtual void Progress(std::chrono::steady_clock::time_point until) = 0;
  // Any thread: ends the Progress under way, or the next one.
  virtual void Wake() = 0;
  // Nothing is under way, and all ranks come here.
  virtual void Finish(common::ProcessSet& process_set) = 0;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_CARRIER_H
