// What the values of one collective look like on their way: as they are, or encoded on each hop.

#ifndef PACELINE_BRIDGE_COLLECTIVES_WIRE_H
#define PACELINE_BRIDGE_COLLECTIVES_WIRE_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "bridge/collectives/memory.h"
#include "core/codecs/codec.h"
#include "core/codecs/data_type.h"
#include "core/collectives/message_terms.h"
#include "core/collectives/schedule.h"

namespace horovod::paceline {

// What one collective is about. `result` has the schedule's elements.
struct Collective {
  std::string name;  // for errors
  std::shared_ptr<const ::paceline::core::CollectiveSchedule> schedule;
  ::paceline::core::DataType dtype = ::paceline::core::DataType::kFloat32;
  ::paceline::core::ReduceOp op = ::paceline::core::ReduceOp::kSum;
  void* result = nullptr;
  // Of the result, which scratch memory and encoded values grow with. The same on all ranks.
  int64_t bytes = 0;
  ::paceline::core::MessageTerms terms;  // the same on all ranks, or the collective fails
  // Which of the collectives of these ranks it is; the same on all of them, and of no other that is under way.
  uint32_t sequence = 0;
  const ::paceline::core::Codec* codec = nullptr;  // none: values are sent as they are
  // Encodes elements of the result that this rank gives away, or settles, for the first time in this collective: what
  // is lost may be remembered. Empty: the codec does. The codec's bytes, in any case.
  std::function<void(int64_t offset, int64_t count, uint8_t* bytes)> encode;
  // The result is there: called once, unless the engine fails.
  std::function<void()> done;
};

// The memory beside the result: scratch, and encoded values while they are in flight. One thread.
class Wire {
 public:
  using Operation = ::paceline::core::CollectiveSchedule::Operation;

  struct Range {
    void* data;
    size_t bytes;
  };

  // Throws std::bad_alloc; std::invalid_argument if the codec refuses the type.
  explicit Wire(const Collective& about);

  // What a send sends and a receive receives, until it is Over. `number`: of the operation.
  Range Begin(int32_t number);
  // It has completed: what was received is in its place now.
  void Over(int32_t number);
  // An operation within the rank.
  void Compute(const Operation& operation);

 private:
  const Operation& At(int32_t number) const { return about_.schedule->operations[static_cast<size_t>(number)]; }
  uint8_t* InResult(const Operation& operation) const;
  uint8_t* InScratch(const Operation& operation) const;
  void Combine(const Operation& operation);
  void Copy(const Operation& operation);
  Range Encoded(int32_t number, const Operation& operation);
  bool Forwards(const Operation& operation) const;

  const Collective& about_;
  int64_t scratch_bytes_ = 0;  // of each block
  Memory scratch_;
  std::vector<bool> scratch_encoded_;           // by block
  std::unordered_map<int32_t, Memory> flying_;  // by operation: encoded values
  std::set<int64_t> settled_;                   // offsets of ranges that all go on with
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_WIRE_H
