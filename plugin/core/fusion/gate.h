// Holds back the tensors of a merge group until the group is complete on this rank.

#ifndef PACELINE_CORE_FUSION_GATE_H
#define PACELINE_CORE_FUSION_GATE_H

#include <cstdint>
#include <vector>

namespace paceline::core {

// A tensor is reduced only when every rank offers it, so a rank that holds tensors back until their group is complete
// makes the whole group ready in one coordination round, whichever way readiness is negotiated.
//
// Tensors and groups are numbers. Every tensor is in one of three states:
//
//   away     not handed in since it was last reduced
//   held     handed in, kept back here
//   offered  handed in and let through; it may be seen again and again until it is reduced
//
// and every group in one of two; `seen` are the members handed in during its current round:
//
//   state       event                                 next        what happens
//   collecting  member, others still missing          collecting  the member is held
//   collecting  member, the last one                  collecting  all held members go, a new round begins
//   collecting  patience runs out while some are held open        all held members go, one strike
//   collecting  the same, an even strike              collecting  all held members go, a new round begins
//   open        member not seen in this round         open        it goes at once; the last one: collecting, new round
//   any         member seen in this round             collecting  held members go; a new round begins with it
//   any         plan changes                          -           all held members go
//
// A group with kMostStrikes strikes stays open until the plan changes: its members do not come together, for example
// because some belong to parameters that are unused in some steps, and waiting for them would cost time in every step.
// Before that, a strike is forgiven for every kForgiving rounds that were complete: in weeks of training something will
// hold up a step now and then. At an even strike the round ends with what has come: the rounds may be out of line with
// the program's steps, the missing members being those of the next step, and are in line after that.
//
// Nothing is held for longer than the patience after the last arrival, so a program that waits for a held tensor before
// it hands in the next goes on. Time passes only while somebody looks: of the time between two looks (Expire) at most
// an eighth of the patience counts, for a process that was stopped, or a thread that was busy with a long message, has
// not waited in vain for gradients meanwhile. One thread at a time.
class Gate {
 public:
  static constexpr int kMostStrikes = 3;
  static constexpr int kForgiving = 100;
  static constexpr int64_t kLooks = 8;  // that the patience takes at least

  // Follow a new plan from here on: `group_of[t]` is the group of tensor t, negative where it has none. Returns what
  // was held. Tensors that came in the running step count as seen: those that are held or offered, and those with
  // `reduced[t]`, which are through already. Those with `earlier[t]` came in a step before, and are on their way still
  // where an exchange is pipelined: they will come once more in this one.
  std::vector<int32_t> Follow(std::vector<int32_t> group_of, const std::vector<bool>& reduced,
                              const std::vector<bool>& earlier, int64_t timeout_ns);

  // Tensor was handed in, or is seen again. Returns the tensors to let through, in the order in which they came.
  std::vector<int32_t> Arrive(int32_t tensor);

  // The tensor was reduced (or failed).
  void Performed(int32_t tensor);

  // What must not be held any longer at `now_ns`; to be called in every cycle.
  std::vector<int32_t> Expire(int64_t now_ns);

  // Everything that is held, whatever the state.
  std::vector<int32_t> Release();

  // Groups that were let go incomplete, since the plan began.
  int64_t expired() const { return expired_; }

 private:
  enum class Tensor : uint8_t { kAway, kHeld, kOffered };

  struct Group {
    std::vector<int32_t> held;  // in the order in which they came
    int32_t members = 0;
    int32_t seen = 0;
    int32_t strikes = 0;
    int32_t complete = 0;  // rounds since the last strike, or since one was forgiven
    bool open = false;
  };

  Tensor& StateOf(int32_t tensor);
  void BeginRound(int32_t group);
  void Complete(int32_t group);
  void LetGo(Group& group, std::vector<int32_t>& out);

  std::vector<Tensor> tensors_;
  std::vector<uint8_t> seen_;  // per tensor: in the current round of its group
  std::vector<int32_t> group_of_;
  std::vector<std::vector<int32_t>> members_;
  std::vector<Group> groups_;
  int64_t timeout_ns_ = 0;
  int64_t waited_ns_ = 0;  // since the last arrival
  int64_t last_look_ns_ = 0;
  int32_t held_ = 0;
  int64_t expired_ = 0;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_GATE_H
