// Memory for tensors in flight, reused by one message after another.

#ifndef PACELINE_CORE_PARTIAL_MEMORY_POOL_H
#define PACELINE_CORE_PARTIAL_MEMORY_POOL_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace paceline::core {

// A block of bytes without initial values; null until it is assigned one. A move leaves null.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t size) : bytes_(new uint8_t[size]), size_(size) {}

  explicit operator bool() const { return bytes_ != nullptr; }
  uint8_t* bytes() const { return bytes_.get(); }
  std::size_t size() const { return bytes_ == nullptr ? 0 : size_; }

 private:
  std::unique_ptr<uint8_t[]> bytes_;  // NOLINT(modernize-avoid-c-arrays): containers would initialise it
  std::size_t size_ = 0;
};

// The blocks of released tensors. Messages run one after another, so a few blocks serve all tensors of a step, and
// steps after the first allocate nothing. Any thread.
class MemoryPool {
 public:
  // The smallest released block that is large enough, or a new one. A new one replaces a block that is too small: the
  // pool then holds as many blocks as were in use at once.
  Memory Take(std::size_t size);
  void Release(Memory memory);
  // Frees all released blocks.
  void Clear();

  // Bytes of released blocks.
  std::size_t bytes() const;

 private:
  mutable std::mutex mutex_;      // protects the blocks
  std::vector<Memory> released_;  // from small to large
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_PARTIAL_MEMORY_POOL_H
