// Which tensors of a message one collective sends, and where they are.

#ifndef PACELINE_BRIDGE_COLLECTIVES_PARTS_H
#define PACELINE_BRIDGE_COLLECTIVES_PARTS_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "bridge/collectives/choice.h"
#include "bridge/half.h"
#include "core/codecs/codec.h"
#include "core/codecs/data_type.h"
#include "core/codecs/error_feedback.h"
#include "horovod/common/common.h"
#include "horovod/common/message.h"

namespace horovod::paceline {

// What an operation by a reserved name asks for.
struct Purpose {
  enum class Kind : uint8_t { kAllreduce, kReduce, kPing };

  Kind kind = Kind::kAllreduce;
  int32_t first = -1;  // a reduce's root; one of a pair
  int32_t second = -1;
  int32_t rounds = 1;  // there and back between a pair
  Half half = Half::kBoth;

  // An allreduce as Horovod knows it.
  bool ordinary() const { return kind == Kind::kAllreduce && half == Half::kBoth; }
  // Of the operation of this name.
  static Purpose Of(const std::string& name);
  bool operator<(const Purpose& other) const {
    return std::tie(kind, first, second, rounds, half) <
           std::tie(other.kind, other.first, other.second, other.rounds, other.half);
  }
};

// Tensors of one message that are treated alike. Those of one part that is alone in its tensor lie where the result is
// to be, others are packed.
struct MessagePart {
  int32_t process_set_id = 0;
  Purpose purpose;
  Encoding encoding;
  int32_t method = 0;           // as in CollectiveChoice; never Horovod's
  std::vector<size_t> tensors;  // numbers of entries
  int64_t elements = 0;
  uint8_t* data = nullptr;
};

// In the same order on all ranks.
std::vector<MessagePart> PartsOf(const std::vector<common::TensorTableEntry>& entries, const common::Response& response,
                                 ::paceline::core::DataType dtype);
// Null: values are sent as they are.
const ::paceline::core::Codec* CodecOf(const Encoding& encoding);
// Encodes elements of a part with what they lost before (Collective::encode).
std::function<void(int64_t, int64_t, uint8_t*)> WithFeedback(const MessagePart& part,
                                                             const std::vector<common::TensorTableEntry>& entries,
                                                             ::paceline::core::DataType dtype);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_PARTS_H
