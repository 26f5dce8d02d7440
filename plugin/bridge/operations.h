// Operations: all that belongs to one name of a process set has one owner.

#ifndef PACELINE_BRIDGE_OPERATIONS_H
#define PACELINE_BRIDGE_OPERATIONS_H

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bridge/by_name.h"

namespace horovod::paceline {

class Exchange;

// What an exchange has made of the numbers of a registration.
struct ExchangeSettings {
  virtual ~ExchangeSettings() = default;
};

// What an exchange keeps of an operation in one world.
struct ExchangeState {
  virtual ~ExchangeState() = default;
};

// To which exchange an operation is given, and with what.
struct Registration {
  Exchange* exchange = nullptr;
  std::vector<double> numbers;
  std::shared_ptr<const ExchangeSettings> settings;
};

// A name in a process set; Horovod's key for readiness, and ours. Any thread.
class Operation {
 public:
  Operation(int32_t process_set_id, std::string name) : process_set_id(process_set_id), name(std::move(name)) {}

  const int32_t process_set_id;
  const std::string name;

  // Null: it is a plain allreduce.
  std::shared_ptr<const Registration> registration() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return registration_;
  }
  // What is registered, or `made` from now on.
  std::shared_ptr<const Registration> Register(std::shared_ptr<const Registration> made) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (registration_ == nullptr) {
      registration_ = std::move(made);
    }
    return registration_;
  }
  void Unregister() {
    const std::lock_guard<std::mutex> lock(mutex_);
    registration_.reset();
  }

  // What the exchange with such a state keeps; null: nothing, or another exchange keeps something.
  template <typename State>
  std::shared_ptr<State> Kept() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::dynamic_pointer_cast<State>(state_);
  }
  // The same, made of `arguments` where nothing is kept yet.
  template <typename State, typename... Arguments>
  std::shared_ptr<State> KeptOrMade(const Arguments&... arguments) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (state_ == nullptr) {
      state_ = std::make_shared<State>(arguments...);
    }
    return std::dynamic_pointer_cast<State>(state_);
  }
  void Drop() {
    std::shared_ptr<ExchangeState> gone;  // destroyed without the lock: tensors of frameworks may go with it
    const std::lock_guard<std::mutex> lock(mutex_);
    gone.swap(state_);
  }

 private:
  mutable std::mutex mutex_;  // protects everything below
  std::shared_ptr<const Registration> registration_;
  std::shared_ptr<ExchangeState> state_;
};

// Those of a process. Any thread. Registrations of the set of all ranks outlast a world; what exchanges keep does not.
class Operations {
 public:
  using Found = std::shared_ptr<Operation>;

  // Null if nothing was ever said of it.
  Found Find(int32_t process_set_id, const std::string& name) const { return all_.Find(process_set_id, name); }
  Found At(int32_t process_set_id, const std::string& name) {
    return all_.FindOr(process_set_id, name, [&] { return std::make_shared<Operation>(process_set_id, name); });
  }

  template <typename State>
  std::shared_ptr<State> Kept(int32_t process_set_id, const std::string& name) const {
    const auto found = Find(process_set_id, name);
    return found == nullptr ? nullptr : found->template Kept<State>();
  }
  // As if nothing had been said of it.
  void Forget(const Operation& operation) { all_.Take(operation.process_set_id, operation.name); }
  // In all process sets, or in one.
  template <typename State, typename... ProcessSet>
  std::vector<std::shared_ptr<State>> AllKept(ProcessSet... process_set_id) const {
    std::vector<std::shared_ptr<State>> kept;
    for (const auto& operation : all_.All(process_set_id...)) {
      if (auto state = operation->template Kept<State>()) {
        kept.push_back(std::move(state));
      }
    }
    return kept;
  }

  void DropAll() {
    for (const auto& operation : all_.All()) {
      operation->Drop();
    }
  }
  void ForgetUnregistered() {
    for (const auto& operation : all_.All()) {
      if (operation->registration() == nullptr) {
        Forget(*operation);
      }
    }
  }
  void EndProcessSet(int32_t process_set_id) { all_.EraseSet(process_set_id); }

 private:
  ByName<Operation> all_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_OPERATIONS_H
