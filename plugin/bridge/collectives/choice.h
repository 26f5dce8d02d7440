// What users choose: how messages are sent.

#ifndef PACELINE_BRIDGE_COLLECTIVES_CHOICE_H
#define PACELINE_BRIDGE_COLLECTIVES_CHOICE_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "core/naming/name_mark.h"

namespace horovod::paceline {

// Of the values of one tensor. Values that are summed may be encoded, by a codec's number among core's CodecNames().
struct Encoding {
  int32_t codec = 0;  // none
  bool error_feedback = false;

  // Of the operation of this name. Without a mark, nothing is encoded: a script's own sums and counts must arrive as
  // they are.
  static Encoding Of(const std::string& name) {
    const auto mark = ::paceline::core::NameMark::Of(name);
    return {mark.codec, mark.error_feedback};
  }
  bool operator<(const Encoding& other) const {
    return std::tie(codec, error_feedback) < std::tie(other.codec, other.error_feedback);
  }
};

// The same on all ranks (same_choice.h).
struct CollectiveChoice {
  static constexpr int32_t kHorovods = ::paceline::core::NameMark::kHorovods;
  static constexpr int32_t kAuto = ::paceline::core::NameMark::kAuto;

  int32_t method = kHorovods;
  int64_t block_bytes = 0;        // bytes sent at a time; 0: core::UsualBlockBytes
  Encoding encoding;              // of gradients, and of what measures how long messages take
  int64_t codec_least_bytes = 0;  // smaller tensors are never encoded
  bool reproducible = false;      // results depend on values, never on time or on neighbouring messages

  // What ranks compare, and what the numbers are.
  static constexpr size_t kNumbers = 6;
  std::array<int64_t, kNumbers> numbers() const {
    return {
        method, block_bytes, encoding.codec, encoding.error_feedback ? 1 : 0, codec_least_bytes, reproducible ? 1 : 0};
  }
  static constexpr std::array<const char*, kNumbers> kNames = {"PACELINE_COLLECTIVE",
                                                               "collective_block_bytes of PACELINE_DEBUG",
                                                               "PACELINE_CODEC",
                                                               "codec_error_feedback of PACELINE_DEBUG",
                                                               "codec_least_bytes of PACELINE_DEBUG",
                                                               "PACELINE_REPRODUCIBLE"};
};

// Any thread.
class Choices {
 public:
  void Choose(const CollectiveChoice& choice);
  CollectiveChoice chosen() const;

  // By what a message of this name goes, a number as in CollectiveChoice: as the name says, or else as was chosen.
  int32_t MethodOf(int32_t process_set_id, const std::string& name) const;
  // Messages of this name that would go by Horovod's own collectives go by `auto`, or no longer. That is what plans ask
  // for, so it ends with a world: ranks that were in none before, as after an elastic reset, know nothing of it.
  void GoFastest(int32_t process_set_id, const std::string& name);
  void GoAsChosen(int32_t process_set_id, const std::string& name);
  void BeginWorld();
  // A process set has ended.
  void Forget(int32_t process_set_id);

 private:
  // Protects all below. Every message looks up each of its tensors, changes are rare.
  mutable std::shared_mutex mutex_;
  CollectiveChoice choice_;
  std::unordered_map<int32_t, std::unordered_set<std::string>> fastest_;  // names, by process set
};

// The process's, over all worlds.
Choices& TheChoices();

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_CHOICE_H
