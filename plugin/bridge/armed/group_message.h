// One message of an armed step: its tensors, and how it is sent.

#ifndef PACELINE_BRIDGE_ARMED_GROUP_MESSAGE_H
#define PACELINE_BRIDGE_ARMED_GROUP_MESSAGE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bridge/message_reducer.h"
#include "core/codecs/data_type.h"
#include "core/collectives/schedule.h"
#include "horovod/common/common.h"
#include "horovod/common/global_state.h"
#include "horovod/common/message.h"
#include "horovod/common/process_set.h"

namespace horovod::paceline {

// As a response that was negotiated says it. Background thread only.
class GroupMessage {
 public:
  // Whether such a message can be sent in an armed step: a sum or average of floating-point numbers in CPU memory, none
  // of them under a reserved name, or halves of some.
  static bool Fits(const common::Response& response);
  // Another text for whatever differs.
  static std::string Signature(const common::Response& response);

  // One that fits, or a part of one that is a single tensor: number `part`, from 0, of `parts` of a size. `place`: of
  // this rank, by which a half has its shards.
  GroupMessage(common::Response response, ::paceline::core::Place place, int32_t part = 0, int32_t parts = 1);

  const common::Response& response() const { return response_; }
  const std::vector<std::string>& names() const { return response_.tensor_names(); }
  // Whether a request asks for what the response gives to this tensor.
  bool Asks(const common::Request& request, size_t tensor) const;
  // Whether it is a part behind the first one.
  bool goes_on() const { return part_ > 0; }
  // What errors call it.
  std::string Text() const;

  // What it takes on its way: its tensors, one behind the other, and the flag. Of a half, for each rank its shards of
  // all tensors and a flag, or ranks would not hear of the flags of all others; all ranks have room for the largest
  // shard, so that core cuts the message where we do.
  size_t bytes() const;
  // The entries stay in the table.
  common::Status Pack(const common::TensorQueue& queue, uint8_t* buffer) const;
  void SetFlag(uint8_t* buffer, bool raised) const;
  bool Flag(uint8_t* buffer) const;
  MessageReducer::Values Values(uint8_t* buffer) const { return {dtype_, buffer, shards() * stride_, tensors_, half_}; }
  // Hands out the values, and with those of the last part takes the entries from the table and answers them.
  // `start_ns`: when the first part began, as in Executed.
  void Complete(common::HorovodGlobalState& state, common::ProcessSet& process_set, uint8_t* buffer,
                int64_t start_ns) const;

 private:
  // Each has a flag behind it.
  int32_t shards() const { return half_ == Half::kBoth ? 1 : place_.ranks; }
  // Calls `body(data of a tensor from `tensors`, its place in the buffer, bytes)` for a rank's shards of all tensors.
  template <typename Tensor, typename Body>
  void ForShards(int32_t rank, uint8_t* buffer, const std::vector<Tensor*>& tensors, const Body& body) const;
  int64_t Room(size_t tensor) const;
  uint8_t* FlagAt(uint8_t* buffer, int32_t shard) const;
  void PackHalf(const std::vector<const uint8_t*>& tensors, uint8_t* buffer) const;
  void UnpackHalf(uint8_t* buffer, const std::vector<uint8_t*>& tensors, double factor) const;
  size_t offset_bytes() const { return static_cast<size_t>(first_ * ::paceline::core::BytesOf(dtype_)); }
  size_t BytesOf(const common::TensorTableEntry& entry) const;
  // Returns what comes behind.
  const uint8_t* Unpack(const common::TensorTableEntry& entry, const uint8_t* from) const;

  common::Response response_;
  ::paceline::core::DataType dtype_;
  ::paceline::core::Place place_;
  Half half_;
  int32_t part_, parts_;
  int64_t first_ = 0;     // element of the tensor, of a part
  int64_t elements_ = 0;  // without the flag
  int64_t stride_ = 0;    // elements of a shard in the buffer, and its flag
  uint32_t tensors_ = 0;  // their digest
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_ARMED_GROUP_MESSAGE_H
