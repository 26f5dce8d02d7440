// Carries out schedules of core/collectives over a transport; any number of messages are under way together.

#ifndef PACELINE_BRIDGE_COLLECTIVES_ENGINE_H
#define PACELINE_BRIDGE_COLLECTIVES_ENGINE_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "bridge/transport.h"
#include "core/codecs/data_type.h"
#include "core/collectives/execution.h"
#include "core/collectives/schedule.h"

namespace horovod::paceline {

// What one collective is about. `result` has the schedule's elements.
struct Collective {
  std::string name;  // for errors
  std::shared_ptr<const ::paceline::core::CollectiveSchedule> schedule;
  ::paceline::core::DataType dtype = ::paceline::core::DataType::kFloat32;
  ::paceline::core::ReduceOp op = ::paceline::core::ReduceOp::kSum;
  void* result = nullptr;
  // Which of the collectives of these ranks it is; the same on all of them, and of no other that is under way.
  uint32_t sequence = 0;
};

// One thread.
class Engine {
 public:
  explicit Engine(Transport& transport) : transport_(transport) {}

  void Begin(Collective collective);
  // Returns when all that were begun have ended. Throws std::runtime_error that names this rank, the peer and the
  // collective, when a peer is lost or nothing has moved for the transport's limit; nothing is left under way then.
  void Finish();

 private:
  struct Active {
    Collective about;
    ::paceline::core::CollectiveExecution execution;
    std::vector<uint8_t> scratch;
  };
  struct Started {
    Active* active = nullptr;
    int32_t number = -1;  // of the operation
  };
  using Operation = ::paceline::core::CollectiveSchedule::Operation;

  static void* Place(Active& active, const Operation& operation);
  void Advance(Active& active);
  void Start(Active& active, int32_t number);
  [[noreturn]] void Fail(const std::string& why);
  std::string Waiting() const;

  Transport& transport_;
  std::vector<std::unique_ptr<Active>> active_;
  std::unordered_map<uint64_t, Started> started_;  // by the transport's number
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_ENGINE_H
