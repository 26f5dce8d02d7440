// Which operations of the next armed step need no coordination round of their own.

#ifndef PACELINE_CORE_ARMED_AWAITED_H
#define PACELINE_CORE_ARMED_AWAITED_H

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace paceline::core {

// An armed step begins with one round, in which its first group is negotiated. A round is of use only when that is
// complete: a rank that hands in the last of its tensors begins it, and those handed in before wait for that, as do
// those of other groups, which go without a round.
//
//   state     event                                      it is held  next
//   off       anything                                   no          off
//   counting  a tensor of the first group, not the last  yes         counting
//   counting  the last tensor of the first group         no          counting
//   counting  one of the first group again               no          off: a step is not what it was
//   counting  a tensor of another group                  yes         counting
//   counting  anything else                              no          counting
//
// Any thread.
class Awaited {
 public:
  // From here on steps have these tensors; none is being counted.
  void Expect(std::vector<std::string> first, const std::vector<std::string>& others);
  // No tensor of the next step has been handed in.
  void Begin();
  // One may have been, or steps are armed no more.
  void Stop();
  // Whether the operation of this name, which was just handed in, may wait.
  bool Held(const std::string& name);

 private:
  // Of a tensor of the first group: the step that it was last handed in for. Of another group: kOther.
  static constexpr int64_t kOther = -1;

  std::mutex mutex_;  // protects everything below
  std::unordered_map<std::string, int64_t> step_of_;
  int64_t first_ = 0;  // tensors of the first group
  int64_t step_ = 0;
  int64_t lacking_ = 0;  // of the first group
  bool counting_ = false;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_ARMED_AWAITED_H
