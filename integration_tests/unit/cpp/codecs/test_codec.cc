// What holds for every codec.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "codecs/values.h"
#include "core/codecs/codec.h"
#include "core/codecs/combine.h"
#include "doctest/doctest.h"

using namespace paceline::core;

namespace {

// Calls `body` for each codec with each floating-point type that it takes.
template <typename Body>
void ForAll(const Body& body) {
  for (const std::string& name : CodecNames()) {
    const Codec& codec = CodecNamed(name);
    for (const DataType type : kFloatTypes) {
      if (codec.Refusal(type).empty()) {
        CAPTURE(name);
        CAPTURE(NameOf(type));
        body(codec, type);
      }
    }
  }
}

std::vector<float> Some(int64_t count) { return Families(count)[0].second; }

Block Encoded(const Codec& codec, DataType type, Block& block, int64_t count) {
  Block bytes(codec.EncodedBytes(type, count));
  codec.Encode(type, block.data(), count, bytes.data());
  CHECK_FALSE(bytes.overrun());
  return bytes;
}

Block Decoded(const Codec& codec, DataType type, Block& bytes, int64_t count) {
  Block block(count * BytesOf(type));
  codec.Decode(type, bytes.data(), count, block.data());
  CHECK_FALSE(block.overrun());
  return block;
}

}  // namespace

TEST_CASE("codecs are found by name, and an unknown name gets the list") {
  CHECK(CodecNames() == std::vector<std::string>{"none", "bf16", "q8", "q4"});
  for (const std::string& name : CodecNames()) {
    CHECK(CodecNamed(name).name() == name);
    CHECK(CodecNamed(name).exact() == (name == "none"));
  }
  CHECK_THROWS_WITH_AS(CodecNamed("fp4"), "there is no codec \"fp4\"; there are: none, bf16, q8, q4",
                       std::invalid_argument);
}

TEST_CASE("bytes on the wire") {
  struct Row {
    const char* codec;
    int64_t count, bytes;
  };
  for (const Row& row : {Row{"none", 1000, 4000}, Row{"bf16", 1000, 2000}, Row{"q8", 1000, 1016}, Row{"q8", 256, 260},
                         Row{"q8", 257, 265}, Row{"q8", 1, 5}, Row{"none", 0, 0}, Row{"bf16", 0, 0}, Row{"q8", 0, 0},
                         Row{"q4", 1000, 516}, Row{"q4", 257, 137}, Row{"q4", 2, 5}, Row{"q4", 0, 0}}) {
    CAPTURE(row.codec);
    CAPTURE(row.count);
    CHECK(CodecNamed(row.codec).EncodedBytes(DataType::kFloat32, row.count) == row.bytes);
  }
  CHECK(CodecNamed("none").EncodedBytes(DataType::kFloat64, 3) == 24);
  CHECK(CodecNamed("q8").EncodedBytes(DataType::kFloat64, 3) == 7);
}

TEST_CASE("what a codec does not take is refused with what to use instead, in all its functions") {
  const Codec& q8 = CodecNamed("q8");
  const std::string refusal =
      "codec \"q8\" does not take int32: only floating-point values survive rounding; use codec=\"none\" for this "
      "tensor";
  CHECK(q8.Refusal(DataType::kInt32) == refusal);
  int32_t value = 1;
  uint8_t bytes[8] = {};
  CHECK_THROWS_WITH_AS(q8.EncodedBytes(DataType::kInt32, 1), refusal.c_str(), std::invalid_argument);
  CHECK_THROWS_WITH_AS(q8.Encode(DataType::kInt32, &value, 1, bytes), refusal.c_str(), std::invalid_argument);
  CHECK_THROWS_WITH_AS(q8.Decode(DataType::kInt32, bytes, 1, &value), refusal.c_str(), std::invalid_argument);
  CHECK_THROWS_WITH_AS(q8.DecodeCombine(DataType::kInt32, ReduceOp::kSum, bytes, 1, &value), refusal.c_str(),
                       std::invalid_argument);
  CHECK(CodecNamed("bf16").Refusal(DataType::kFloat16) ==
        "codec \"bf16\" does not take float16: it takes no more bytes as it is and is more precise; use "
        "codec=\"none\", or "
        "\"q8\" for fewer bytes");
  for (const DataType type : {DataType::kUint8, DataType::kInt8, DataType::kUint16, DataType::kInt16, DataType::kInt32,
                              DataType::kInt64, DataType::kBool}) {
    CHECK(CodecNamed("none").Refusal(type).empty());
    for (const char* name : {"bf16", "q8", "q4"}) {
      CHECK_FALSE(CodecNamed(name).Refusal(type).empty());
    }
  }
}

TEST_CASE("encoding is deterministic, whatever lay in memory and however it is aligned") {
  ForAll([](const Codec& codec, DataType type) {
    for (const int64_t count : kCounts) {
      CAPTURE(count);
      Block block(type, Some(count));
      const Block once = Encoded(codec, type, block, count);
      std::vector<double> aligned(static_cast<size_t>(count + 1));
      std::memcpy(aligned.data(), block.data(), static_cast<size_t>(count * BytesOf(type)));
      Block twice(codec.EncodedBytes(type, count));
      std::memset(twice.data(), 0x5a, static_cast<size_t>(codec.EncodedBytes(type, count)));
      codec.Encode(type, aligned.data(), count, twice.data());
      CHECK(once == twice);
    }
  });
}

TEST_CASE("what was decoded is representable: encoding it again changes nothing") {
  ForAll([](const Codec& codec, DataType type) {
    if (BytesOf(type) == 2 && codec.name()[0] == 'q') {
      return;  // multiples of a step are rounded to the type
    }
    for (const int64_t count : kCounts) {
      for (const auto& [family, values] : Families(count)) {
        CAPTURE(count);
        CAPTURE(family);
        Block block(type, values);
        Block bytes = Encoded(codec, type, block, count);
        Block decoded = Decoded(codec, type, bytes, count);
        Block again = Encoded(codec, type, decoded, count);
        CHECK(Decoded(codec, type, again, count) == decoded);
      }
    }
  });
}

TEST_CASE("a block may be cut at any multiple of 256") {
  ForAll([](const Codec& codec, DataType type) {
    const int64_t count = 1283;
    Block block(type, Some(count));
    const Block whole = Encoded(codec, type, block, count);
    for (int64_t cut = 0; cut <= count; cut += kCodecSlice) {
      Block parts(codec.EncodedBytes(type, count));
      codec.Encode(type, block.data(), cut, parts.data());
      codec.Encode(type, block.data() + cut * BytesOf(type), count - cut, parts.data() + codec.EncodedBytes(type, cut));
      CHECK(parts == whole);
    }
  });
}

TEST_CASE("decoding into a block equals decoding and then combining, in float32 where the type is smaller") {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    CAPTURE(static_cast<int>(op));
    ForAll([op](const Codec& codec, DataType type) {
      for (const int64_t count : kCounts) {
        CAPTURE(count);
        Block block(type, Some(count));
        Block bytes = Encoded(codec, type, block, count);
        std::vector<float> other = Some(2 * count);
        other.erase(other.begin(), other.begin() + count);
        Block sum(type, other);
        Block expected = sum;
        const bool half = BytesOf(type) == 2;
        if (half && !codec.exact()) {
          const DataType wide = DataType::kFloat32;
          Block decoded = Decoded(codec, wide, bytes, count);
          Block sums(wide, sum.Values(type));
          Combine(wide, op, sums.data(), decoded.data(), count);
          expected = Block(type, sums.Values(wide));
        } else {
          Block decoded = Decoded(codec, type, bytes, count);
          Combine(type, op, expected.data(), decoded.data(), count);
        }
        codec.DecodeCombine(type, op, bytes.data(), count, sum.data());
        CHECK(sum == expected);
      }
    });
  }
}

TEST_CASE("bytes of one type decode into another") {
  const std::vector<float> values = Some(1000);
  for (const char* name : {"bf16", "q8", "q4"}) {
    const Codec& codec = CodecNamed(name);
    Block narrow(DataType::kBfloat16, values);
    Block wide(DataType::kFloat32, narrow.Values(DataType::kBfloat16));
    CHECK(Encoded(codec, DataType::kBfloat16, narrow, 1000) == Encoded(codec, DataType::kFloat32, wide, 1000));
  }
}

TEST_CASE("no codec changes nothing, not even the bits of a NaN or an integer") {
  const Codec& none = CodecNamed("none");
  std::vector<uint64_t> bits = {0x7ff0000000000001, 0xffffffffffffffff, 0x8000000000000000, 1};
  std::vector<uint64_t> back(bits.size());
  std::vector<uint8_t> bytes(static_cast<size_t>(none.EncodedBytes(DataType::kInt64, 4)));
  for (const DataType type : {DataType::kFloat64, DataType::kInt64}) {
    none.Encode(type, bits.data(), 4, bytes.data());
    none.Decode(type, bytes.data(), 4, back.data());
    CHECK(back == bits);
  }
  none.DecodeCombine(DataType::kInt64, ReduceOp::kSum, bytes.data(), 4, back.data());
  CHECK(back[3] == 2);
}
