// Which result answers which call when an exchange is pipelined.

#ifndef PACELINE_CORE_PIPELINED_SLOTS_H
#define PACELINE_CORE_PIPELINED_SLOTS_H

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace paceline::core {

// K beyond this is a fault: so many gradients of every parameter would be kept.
constexpr int32_t kMostK = 64;

// Pipe-SGD (Li et al., NeurIPS 2018) with iteration dependency K: call t under a name hands in the gradient of step t
// and is answered with the reduced gradient of step t - (K - 1). So K - 1 gradients of a name are between the call that
// brought them and the call that takes their result: one in each slot, slot t mod (K - 1) for call t.
//
// An answer and the gradient that comes with the call change places in the slot. The states of a slot:
//
//   state       event                      next        what happens
//   empty       call                       queued      the call is answered with nothing; its gradient goes in
//   queued      no slot is in flight       in flight   the slot's gradient is submitted
//   in flight   performed                  done        -
//   in flight   call                       in flight   the call waits
//   queued      call                       queued      the call waits
//   done        call, or one that waited   queued      the call is answered with what is in it; its gradient goes in
//   done        clear                      empty       what was in it is dropped (it was taken before)
//   empty       put                        done        what was taken from a run goes into its continuation
//
// One slot of a name is in flight at a time, in the order of the calls: Horovod has one operation of each name. One
// call at a time may wait. K = 1 has no slots and no use for this class. One thread at a time.
class Pipeline {
 public:
  enum class Slot : uint8_t { kEmpty, kQueued, kInFlight, kDone };

  // What has to be done next. Slots are named by their number; negative: nothing.
  struct Todo {
    int32_t exchange = -1;  // answer the call (if `answered`) from this slot, and put its gradient there
    bool answered = false;
    int32_t start = -1;  // hand this slot's gradient to the ranks, after the exchange
  };

  // `k` is at least 2.
  explicit Pipeline(int32_t k) : slots_(static_cast<std::size_t>(k - 1), Slot::kEmpty) {}

  // A call was made. If it has to wait, nothing is to be done and `waiting` holds. Not to be made while one waits.
  Todo Call();
  // The slot in flight was performed, or failed.
  Todo Performed();

  // From the oldest to the newest: the slots that are not empty.
  std::vector<int32_t> Filled() const;
  // Returns true if no slot is queued or in flight and no call waits: contents of slots can be taken, cleared and put.
  bool quiet() const;
  // All slots are empty afterwards. Only while quiet.
  void Clear();
  // Fills the next slot; returns its number, or negative if all are filled. Only while quiet.
  int32_t Put();

  bool waiting() const { return waiting_; }
  Slot slot(int32_t number) const { return slots_[static_cast<std::size_t>(number)]; }

 private:
  Todo Exchange();
  int32_t StartNext();

  std::vector<Slot> slots_;
  std::deque<int32_t> queue_;  // of slots in state queued, oldest first
  int32_t next_ = 0;           // slot of the next call, or of the one that waits
  int32_t in_flight_ = -1;
  bool waiting_ = false;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_PIPELINED_SLOTS_H
