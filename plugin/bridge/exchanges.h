// Which operation belongs to which exchange.

#ifndef PACELINE_BRIDGE_EXCHANGES_H
#define PACELINE_BRIDGE_EXCHANGES_H

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bridge/exchange.h"
#include "bridge/operations.h"

namespace horovod::paceline {

// An operation belongs to at most one exchange: from its registration on, before it is called
// first, until it is unregistered. Registrations are those of a process, and each rank makes its own. They outlast
// shutdown() and init() for the set of all ranks (0), since compiled graphs go on with no Python between; those of
// other sets end with them. A first call that the exchange refuses ends a registration, too. All else is a plain
// allreduce, whatever its name.
//
// Operations that we hand in ourselves (their context is CpuContext()) belong to no exchange: an exchange submits
// them under the name that was called.
class Exchanges : public Participant {
 public:
  Exchanges(Operations& operations, std::vector<Exchange*> exchanges)
      : operations_(operations), exchanges_(std::move(exchanges)) {}

  // Any thread. Empty, or what is wrong: then all is as before. Again with the same settings: as once.
  std::string Register(int32_t process_set_id, const std::string& name, const std::string& exchange,
                       const std::vector<double>& settings);
  // Any thread. Nothing happens if the name is not registered.
  void Unregister(int32_t process_set_id, const std::string& name);

  void BeginWorld() override;
  void EndProcessSet(int32_t process_set_id) override { operations_.EndProcessSet(process_set_id); }
  bool Enqueue(AllreduceCall& call, common::Status& status) override;

 private:
  // It is registered no more, and forgotten if nothing is kept of it.
  void Forget(Operation& operation, Exchange& exchange);
  common::Status CallOne(AllreduceCall& call, size_t n, Operation& operation, const Registration& registration);

  Operations& operations_;
  const std::vector<Exchange*> exchanges_;
  std::mutex registering_;  // an operation is not forgotten while it is registered anew
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_EXCHANGES_H
