// What users choose: how messages travel, in general and by name.

#ifndef PACELINE_BRIDGE_COLLECTIVES_CHOICE_H
#define PACELINE_BRIDGE_COLLECTIVES_CHOICE_H

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace horovod::paceline {

// Of the values of one tensor. Values that are summed may be encoded, by a codec's number among core's CodecNames().
struct Encoding {
  int32_t codec = 0;  // none
  bool error_feedback = false;

  bool operator<(const Encoding& other) const {
    return std::tie(codec, error_feedback) < std::tie(other.codec, other.error_feedback);
  }
};

// The same on all ranks (same_choice.h).
struct CollectiveChoice {
  static constexpr int32_t kHorovods = -1;
  static constexpr int32_t kAuto = 4;  // behind the numbers of core's AllreduceMethod

  int32_t method = kHorovods;
  int64_t block_bytes = 0;        // what travels at a time; 0: core::UsualBlockBytes
  Encoding encoding;              // of gradients, and of what measures how long messages take
  int64_t codec_least_bytes = 0;  // smaller tensors are never encoded

  // What ranks compare, and what the numbers are.
  static constexpr size_t kNumbers = 5;
  std::array<int64_t, kNumbers> numbers() const {
    return {method, block_bytes, encoding.codec, encoding.error_feedback ? 1 : 0, codec_least_bytes};
  }
  static constexpr std::array<const char*, kNumbers> kNames = {"PACELINE_COLLECTIVE", "PACELINE_COLLECTIVE_BLOCK_BYTES",
                                                               "PACELINE_CODEC", "PACELINE_CODEC_ERROR_FEEDBACK",
                                                               "PACELINE_CODEC_LEAST_BYTES"};
};

// Any thread.
class Choices {
 public:
  void Choose(const CollectiveChoice& choice);
  CollectiveChoice chosen() const;

  // Messages of this name go by this method, a number as in CollectiveChoice, from now on. The same on all ranks, as is
  // all that follows.
  void GoBy(int32_t process_set_id, const std::string& name, int32_t method);
  int32_t MethodOf(int32_t process_set_id, const std::string& name) const;
  // Messages of this name that would go by Horovod's own collectives go by `auto`, or no longer. That is what plans ask
  // for, so it ends with a world: ranks that were in none before, as after an elastic reset, know nothing of it.
  void GoFastest(int32_t process_set_id, const std::string& name);
  void GoAsChosen(int32_t process_set_id, const std::string& name);

  // The values of this name are encoded from now on. Of names that were not given here, nothing is: an optimizer or
  // tape gives those of its gradients, while a script's own sums and counts must arrive as they are.
  void Encode(int32_t process_set_id, const std::string& name, const Encoding& encoding);
  void EncodeNoMore(int32_t process_set_id, const std::string& name);
  Encoding EncodingOf(int32_t process_set_id, const std::string& name) const;
  // How often any of this has changed.
  int64_t changes() const { return changes_; }
  // What plans asked for in the world before is over.
  void BeginWorld();
  // A process set that ends, and its names with it.
  void Forget(int32_t process_set_id);

 private:
  struct OfSet {
    std::unordered_map<std::string, Encoding> encodings;
    std::unordered_map<std::string, int32_t> methods;
    std::unordered_set<std::string> fastest;
  };

  std::atomic<int64_t> changes_{0};
  // Protects all below. Every message looks up each of its tensors, changes are rare.
  mutable std::shared_mutex mutex_;
  CollectiveChoice choice_;
  std::unordered_map<int32_t, OfSet> sets_;
};

// The process's, over all worlds.
Choices& TheChoices();

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_CHOICE_H
