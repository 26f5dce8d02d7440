// How an operation travels, as its name says: whoever hears of the operation knows it, a rank that has joined, too.

#ifndef PACELINE_CORE_NAMING_NAME_MARK_H
#define PACELINE_CORE_NAMING_NAME_MARK_H

#include <cstdint>
#include <optional>
#include <string_view>

namespace paceline::core {

// A part of a name between two '>': a codec's name, "_plain" where nothing of what it loses is fed back, and "_" with a
// collective's where that is not the one of all operations: ">q8>", ">bf16_plain_direct>", ">none_ring>". In no name of
// a node of TensorFlow would other brackets do.
struct NameMark {
  int32_t codec = 0;  // among CodecNames()
  bool error_feedback = false;
  std::optional<int32_t> method;  // an AllreduceMethod, or one of the two below

  static constexpr int32_t kHorovods = -1, kAuto = 4;

  // The first mark in `name`; without one: as it is, by the collective of all operations.
  static NameMark Of(std::string_view name);
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_NAMING_NAME_MARK_H
