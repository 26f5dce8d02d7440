// How a rank carries a message, in 64 bits that come with each of its parts: ranks that differ find out at the first.

#ifndef PACELINE_CORE_COLLECTIVES_MESSAGE_TERMS_H
#define PACELINE_CORE_COLLECTIVES_MESSAGE_TERMS_H

#include <cstdint>
#include <string>

namespace paceline::core {

// Names, sizes and types of a message's tensors as one number.
class TensorsDigest {
 public:
  void Add(const std::string& name);
  void Add(int64_t number);
  uint32_t value() const { return value_; }

 private:
  void Byte(uint8_t byte);

  uint32_t value_ = 2166136261;  // FNV-1a
};

//   field     bits   what
//   way       4      an AllreduceMethod, or one of the numbers below
//   codec     4      its number among CodecNames(); 0: none
//   block     24     elements in flight at a time; the largest number stands for all above
//   tensors   32     TensorsDigest
struct MessageTerms {
  static constexpr int32_t kReduce = 4, kBroadcast = 5, kPing = 6, kReduceScatter = 7, kAllGather = 8;

  int32_t way = 0;
  int32_t codec = 0;
  int64_t block = 1;
  uint32_t tensors = 0;

  static MessageTerms Of(uint64_t bits);
  uint64_t Bits() const;
  // "ring, codec none, blocks of 4096 elements, tensors 0x12345678"
  std::string Text() const;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_COLLECTIVES_MESSAGE_TERMS_H
