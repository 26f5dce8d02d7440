#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "core/partial/memory_pool.h"
#include "doctest/doctest.h"

using paceline::core::Memory;
using paceline::core::MemoryPool;

namespace {

// Runs messages of tensors of these sizes, one message after another, as rounds do. Returns the blocks of the last one.
std::set<uint8_t*> Run(MemoryPool& pool, const std::vector<std::vector<std::size_t>>& messages) {
  std::set<uint8_t*> blocks;
  for (const auto& sizes : messages) {
    std::vector<Memory> message;
    blocks.clear();
    for (const auto size : sizes) {
      message.push_back(pool.Take(size));
      CHECK(message.back().size() >= size);
      blocks.insert(message.back().bytes());
    }
    for (auto& memory : message) {
      pool.Release(std::move(memory));
    }
  }
  return blocks;
}

}  // namespace

TEST_CASE("memory has a size until it is moved") {
  Memory memory(5);
  CHECK(memory);
  CHECK(memory.size() == 5);
  const auto* bytes = memory.bytes();
  Memory other = std::move(memory);
  CHECK(other.bytes() == bytes);
  CHECK(other.size() == 5);
  CHECK_FALSE(memory);  // NOLINT(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  CHECK(memory.size() == 0);
  CHECK_FALSE(Memory());
  CHECK(Memory(0));
}

TEST_CASE("one message after another uses the same blocks") {
  MemoryPool pool;
  const auto first = Run(pool, {{100, 100, 100}});
  CHECK(pool.bytes() == 300);
  CHECK(Run(pool, {{100, 100, 100}}) == first);
  const auto last = Run(pool, {{100}, {100}, {100, 100}});
  CHECK(std::includes(first.begin(), first.end(), last.begin(), last.end()));
  CHECK(pool.bytes() == 300);
}

TEST_CASE("tensors of all sizes, one at a time, need one block of the largest size") {
  MemoryPool pool;
  Run(pool, {{1}, {7}, {20}, {33}, {1000}, {3}});
  CHECK(pool.bytes() == 1000);
}

TEST_CASE("a tensor takes the smallest block that is large enough") {
  MemoryPool pool;
  Run(pool, {{10, 1000, 100}});
  CHECK(pool.bytes() == 1110);
  CHECK(pool.Take(11).size() == 100);
  CHECK(pool.Take(11).size() == 1000);
  CHECK(pool.bytes() == 10);
  CHECK(pool.Take(11).size() == 11);  // in place of the block of 10
  CHECK(pool.bytes() == 0);
}

TEST_CASE("messages in any order settle: no step allocates after the first") {
  const std::vector<std::vector<std::size_t>> step = {{25, 25, 25}, {100}, {1, 2, 3}, {50, 4, 60}};
  MemoryPool pool;
  Run(pool, step);
  Run(pool, step);
  const auto blocks = Run(pool, step);
  const auto bytes = pool.bytes();
  CHECK(Run(pool, step) == blocks);
  CHECK(pool.bytes() == bytes);
  CHECK(bytes <= 100 + 60 + 50);
}

TEST_CASE("a cleared pool has no memory") {
  MemoryPool pool;
  Run(pool, {{10, 20}});
  pool.Clear();
  CHECK(pool.bytes() == 0);
  CHECK(pool.Take(5).size() == 5);
}
