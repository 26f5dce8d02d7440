// Mark in an operation's name: its codec, error feedback and collective. All ranks read it, including joined ranks.

#ifndef PACELINE_CORE_NAMING_NAME_MARK_H
#define PACELINE_CORE_NAMING_NAME_MARK_H

#include <cstdint>
#include <optional>
#include <string_view>

namespace paceline::core {

// Part of a name between two '>': the name of a codec, "_plain" without error feedback, and "_" with the name of a
// collective if it differs from the collective of all operations. Examples: ">q8>", ">bf16_plain_direct>",
// ">none_ring>". Names of TensorFlow nodes do not allow other brackets.
struct NameMark {
  int32_t codec = 0;  // index into CodecNames()
  bool error_feedback = false;
  std::optional<int32_t> method;  // an AllreduceMethod, kHorovods or kAuto

  static constexpr int32_t kHorovods = -1, kAuto = 4;

  // Returns the first mark in `name`. Without a mark: no codec, and the collective of all operations.
  static NameMark Of(std::string_view name);
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_NAMING_NAME_MARK_H
