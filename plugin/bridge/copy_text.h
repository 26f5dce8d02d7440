// How C entry points tell a text.

#ifndef PACELINE_BRIDGE_COPY_TEXT_H
#define PACELINE_BRIDGE_COPY_TEXT_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace horovod::paceline {

// As much of it as `capacity` bytes have room for, with its end behind.
inline void CopyText(const std::string& text, char* to, int64_t capacity) {
  if (capacity > 0) {
    const auto bytes = std::min(text.size(), static_cast<size_t>(capacity) - 1);
    std::memcpy(to, text.data(), bytes);
    to[bytes] = '\0';
  }
}

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COPY_TEXT_H
