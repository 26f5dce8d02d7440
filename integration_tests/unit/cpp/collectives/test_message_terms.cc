#include <string>

#include "core/collectives/algorithms.h"
#include "core/collectives/message_terms.h"
#include "doctest/doctest.h"

using paceline::core::MessageTerms;
using paceline::core::TensorsDigest;

namespace {

uint32_t Of(const std::string& name, int64_t elements) {
  TensorsDigest digest;
  digest.Add(name);
  digest.Add(elements);
  return digest.value();
}

}  // namespace

TEST_CASE("terms keep their fields in 64 bits") {
  const MessageTerms terms{MessageTerms::kPing, 3, 4096, 0x89abcdef};
  const auto again = MessageTerms::Of(terms.Bits());
  CHECK(again.way == terms.way);
  CHECK(again.codec == terms.codec);
  CHECK(again.block == terms.block);
  CHECK(again.tensors == terms.tensors);
  CHECK(MessageTerms::Of(MessageTerms{0, 0, int64_t{1} << 40, 0}.Bits()).way == 0);
}

TEST_CASE("whatever differs changes the bits") {
  const MessageTerms terms{1, 0, 4096, Of("a", 3)};
  for (const MessageTerms other : {MessageTerms{0, 0, 4096, Of("a", 3)}, MessageTerms{1, 2, 4096, Of("a", 3)},
                                   MessageTerms{1, 0, 4097, Of("a", 3)}, MessageTerms{1, 0, 4096, Of("b", 3)},
                                   MessageTerms{1, 0, 4096, Of("a", 4)}}) {
    CHECK(other.Bits() != terms.Bits());
  }
}

TEST_CASE("terms as users read them") {
  CHECK(MessageTerms{1, 0, 4096, 0xab}.Text() == "ring, codec none, blocks of 4096 elements, tensors 0xab");
  CHECK(MessageTerms{MessageTerms::kReduce, 99, 1, 1}.Text() == "reduce, codec 99, blocks of 1 elements, tensors 0x1");
}
