// What an allreduce call means: an exchange, to which operations are given by registration (exchanges.h).

#ifndef PACELINE_BRIDGE_EXCHANGE_H
#define PACELINE_BRIDGE_EXCHANGE_H

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "bridge/operations.h"
#include "bridge/participant.h"

namespace horovod::paceline {

// One tensor of a call that an exchange takes over. The tensor can be read, and is in memory of the CPU.
struct ExchangeCall {
  common::ProcessSet& process_set;
  Operation& operation;
  const ExchangeSettings& settings;
  Reducing reducing;
  std::shared_ptr<common::Tensor> tensor, output;
  common::StatusCallback callback;
};

// Hooks without a note are called as Participant says, these in threads of frameworks.
class Exchange : public Participant {
 public:
  // What registrations call it.
  virtual const char* word() const = 0;
  // What an operation of it is to users: "Partial allreduce of <name>".
  virtual std::string Title(const std::string& name) const = 0;

  // Null if these are no settings of this exchange; `expected` then says what is.
  virtual std::shared_ptr<const ExchangeSettings> Parse(const std::vector<double>& settings,
                                                        std::string& expected) const = 0;

  // Whether the next call of a registered name is taken over; asked once for each. False: it is a plain allreduce.
  virtual bool Takes(Operation& /*operation*/, const ExchangeSettings& /*settings*/) { return true; }

  // A call: `output` holds the answer when `callback` is called, in this thread or in the background thread. An error
  // if the call cannot be accepted: then the callback is not called, and Has() is as before.
  virtual common::Status Call(ExchangeCall call) = 0;

  // Whether anything is kept of it: a call was accepted, or something was put there for the first one.
  virtual bool Has(const Operation& operation) const = 0;

  // It is not registered any more; what can be dropped of it, is.
  virtual void Unregistered(Operation& /*operation*/) {}

  void BeginWorld() override { used_ = false; }

 protected:
  // False as long as there was no call in this world, in any set: then there is nothing to look for. Relaxed: whoever
  // may find something has synchronised with the call that made it, or is not the one that has to find it.
  bool used() const { return used_.load(std::memory_order_relaxed); }
  void Use() { used_.store(true, std::memory_order_relaxed); }
  static common::Status Anothers(const std::string& title) {
    return common::Status::InvalidArgument(
        title + ": the calls of this name before were of another exchange. Give it another name.");
  }

 private:
  std::atomic<bool> used_{false};
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_EXCHANGE_H
