#include <vector>

#include "core/fusion/message_packing.h"
#include "doctest/doctest.h"

using namespace paceline::core;

using Messages = std::vector<std::vector<size_t>>;

TEST_CASE("tensors fill messages up to the limit of bytes, in order") {
  const std::vector<PackedTensor> tensors = {{60, 1, 0}, {30, 1, 0}, {20, 1, 0}, {10, 1, 0}, {80, 1, 0}};
  CHECK(PackMessages(tensors, {100, 1000}) == Messages{{0, 1, 3}, {2, 4}});
  CHECK(PackMessages(tensors, {0, 1000}) == Messages{{0}, {1}, {2}, {3}, {4}});
  CHECK(PackMessages({}, {100, 1000}).empty());
}

TEST_CASE("a tensor that is larger than a limit goes alone") {
  const std::vector<PackedTensor> tensors = {{101, 1, 0}, {1, 1, 0}, {1, 11, 0}, {1, 1, 0}};
  CHECK(PackMessages(tensors, {100, 10}) == Messages{{0}, {1, 3}, {2}});
}

TEST_CASE("tensors of several kinds do not share a message") {
  const std::vector<PackedTensor> tensors = {{1, 1, 0}, {1, 1, 1}, {1, 1, 0}, {1, 1, 2}, {1, 1, 1}};
  CHECK(PackMessages(tensors, {100, 100}) == Messages{{0, 2}, {1, 4}, {3}});
}

TEST_CASE("a message has fewer elements than an int counts, whatever its bytes may be") {
  // A large model in float16 as one group: 8 billion elements.
  const int64_t elements = 400'000'000;
  const std::vector<PackedTensor> tensors(20, {2 * elements, elements, 0});
  const MessageLimits limits{int64_t{1} << 40};
  size_t packed = 0;
  for (const auto& message : PackMessages(tensors, limits)) {
    CHECK(static_cast<int64_t>(message.size()) * elements <= kMostElements);
    packed += message.size();
  }
  CHECK(packed == tensors.size());
  CHECK(PackMessages(tensors, limits).size() == 4);
}
