#include "core/partial/memory_pool.h"

#include <algorithm>
#include <numeric>

namespace paceline::core {

Memory MemoryPool::Take(std::size_t size) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto fits = std::find_if(released_.begin(), released_.end(),
                                   [size](const Memory& memory) { return memory.size() >= size; });
    if (fits != released_.end()) {
      Memory memory = std::move(*fits);
      released_.erase(fits);
      return memory;
    }
    if (!released_.empty()) {
      released_.pop_back();
    }
  }
  return Memory(size);
}

void MemoryPool::Release(Memory memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto larger = std::find_if(released_.begin(), released_.end(),
                                   [&](const Memory& other) { return other.size() >= memory.size(); });
  released_.insert(larger, std::move(memory));
}

void MemoryPool::Clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  released_.clear();
}

std::size_t MemoryPool::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::accumulate(released_.begin(), released_.end(), std::size_t{0},
                         [](std::size_t sum, const Memory& memory) { return sum + memory.size(); });
}

}  // namespace paceline::core
