// The planner's words: gradients, merge groups, and what a merge group costs.

#ifndef PACELINE_CORE_FUSION_MERGE_GROUPS_H
#define PACELINE_CORE_FUSION_MERGE_GROUPS_H

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/fusion/cost_model.h"

namespace paceline::core {

// A tensor that will have to be reduced.
struct Gradient {
  double bytes = 0;
  double ready_s = 0;  // when it is handed in, on any clock
  int32_t type = 0;    // only tensors of one type (data type, device, operation) can be in one message
};

// Two ends that differ by less, relatively, are the same but for rounding.
constexpr double kSameEnd = 1e-12;

// Merge groups in order of sending; each holds indices of gradients. In armed steps a gradient may go in parts, all of
// a size: it is alone in as many groups, one behind the other.
using Groups = std::vector<std::vector<int64_t>>;

// Throws std::invalid_argument, naming the tensor, if bytes or readiness are not finite or bytes are negative.
void ValidateGradients(const std::vector<Gradient>& gradients);

// Throws std::invalid_argument, naming the tensor or group, unless each of `tensors` tensors is in exactly one group
// and no group is empty.
void ValidateGroups(const Groups& groups, size_t tensors);

// The number of groups, from this one on, that hold parts of its gradient; 1 if it holds whole ones.
size_t PartsFrom(const Groups& groups, size_t group);
// The same groups, and every gradient whole.
Groups Whole(const Groups& groups);
// So many parts a gradient goes in where none is to have more than `most_bytes` (0: no limit).
size_t PartsOf(double bytes, double most_bytes);
// Groups behind the first one that are a single gradient become as many parts. Those of the first group are negotiated,
// and whole.
Groups InParts(const Groups& whole, const std::vector<Gradient>& gradients, double most_bytes);

// Indices in order of readiness; of gradients ready at the same time, the one given first comes first.
std::vector<int64_t> OrderOfReadiness(const std::vector<Gradient>& gradients);

// Running cost of a merge group to which gradients are added one by one: a message for each type in it.
class GroupCost {
 public:
  // Types are numbered densely once, so that adding a gradient takes constant time.
  GroupCost(const std::vector<Gradient>& gradients, const CostModel& cost);

  void Clear();
  void Add(int64_t gradient);
  bool HasTypeOf(int64_t gradient) const { return messages_[type_of_[gradient]].tensors > 0; }
  double bytes() const { return bytes_; }
  double seconds() const { return seconds_; }
  size_t messages() const { return present_.size(); }
  // Calls `use` with the seconds of each message, in the order of their types, whatever was added first; each of
  // `parts` that messages are divided into takes them.
  template <typename Use>
  void EachMessage(double parts, Use use) const {
    for (const size_t type : present_) {
      use(parts > 1 ? cost_(messages_[type].bytes / parts) : messages_[type].seconds);
    }
  }

 private:
  struct Message {
    int64_t tensors = 0;
    double bytes = 0;
    double seconds = 0;
  };

  const std::vector<Gradient>& gradients_;
  const CostModel& cost_;
  std::vector<size_t> type_of_;    // by gradient
  std::vector<Message> messages_;  // by type
  std::vector<size_t> present_;    // types with tensors, in their order
  double bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_MERGE_GROUPS_H
