// Which operations of the next armed step need no coordination round of their own.

#ifndef PACELINE_CORE_ARMED_AWAITED_H
#define PACELINE_CORE_ARMED_AWAITED_H

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/coordination/need.h"

namespace paceline::core {

// An armed step begins with one round, in which its first group is negotiated. A round is of use only when that is
// complete: a rank that hands in the last of its tensors begins it, and those handed in before wait for that. Those of
// other groups go without a round; a rank that hands them in has more to come as long as its first group lacks some,
// and must not keep others waiting when it lacks none.
//
//   state     event                                            needs    next
//   off       anything                                         a round  off
//   counting  a tensor of the first group, not the last        others   counting
//   counting  the last tensor of the first group               a round  counting
//   counting  one of the first group again                     a round  off: a step is not what it was
//   counting  a tensor of another group, the first lacks some  others   counting
//   counting  a tensor of another group, the first lacks none  none     counting
//   counting  anything else                                    a round  counting
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
  // Of the operation of this name, which was just handed in.
  Need Of(const std::string& name);

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
