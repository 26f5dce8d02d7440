// Operations of the next armed step that need no coordination round of their own.

#ifndef PACELINE_CORE_ARMED_AWAITED_H
#define PACELINE_CORE_ARMED_AWAITED_H

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/coordination/need.h"

namespace paceline::core {

// An armed step begins with one round, in which its first group is negotiated. The round is useful only if the group is
// complete: the last submitted tensor of the group begins the round, and earlier tensors wait for it. Tensors of other
// groups need no round. A rank that submits such a tensor while its first group is incomplete will submit more tensors;
// with a complete first group it must not delay other ranks.
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
  // Sets the tensors of steps from now on. No step is counted yet.
  void Expect(std::vector<std::string> first, const std::vector<std::string>& others);
  // Begins a step: none of its tensors has been submitted.
  void Begin();
  // Stops counting: a tensor may have been submitted already, or steps are not armed any more.
  void Stop();
  // Returns the need of the operation of this name, which was just submitted.
  Need Of(const std::string& name);

 private:
  // Value in step_of_ for tensors of other groups. Tensors of the first group have the step of their last submission.
  static constexpr int64_t kOther = -1;

  std::mutex mutex_;  // protects everything below
  std::unordered_map<std::string, int64_t> step_of_;
  int64_t first_ = 0;  // tensors of the first group
  int64_t step_ = 0;
  int64_t lacking_ = 0;  // missing tensors of the first group
  bool counting_ = false;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_ARMED_AWAITED_H
