// How far one rank is in one collective: what may be started now.

#ifndef PACELINE_CORE_COLLECTIVES_EXECUTION_H
#define PACELINE_CORE_COLLECTIVES_EXECUTION_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "core/collectives/schedule.h"

namespace paceline::core {

// An executor does what a schedule says:
//
//   for (;;) {
//     for (int32_t number; (number = execution.Next()) >= 0;) { start the operation }
//     if (execution.finished()) break;
//     wait for one that is complete; execution.Done(its number);
//   }
//
// Operations may be completed in any order, at once after Next() or much later. Receives that may be posted ahead come
// from Next() like everything else; what was received into scratch is combined by an operation of its own, and only
// when that is done goes on its way or makes room. The states of an operation:
//
//   state    event                                   next
//   waiting  all operations that it comes after done  ready
//   ready    Next() returned it                       started
//   started  Done()                                   done
//
// Executions share nothing but schedules, which are not changed: many can be under way. One thread at a time.
class CollectiveExecution {
 public:
  enum class State : uint8_t { kWaiting, kReady, kStarted, kDone };

  explicit CollectiveExecution(std::shared_ptr<const CollectiveSchedule> schedule);

  // Starts the first ready receive of the list, or, if there is none, the first ready operation. Returns its number, or
  // a negative number if none is ready. A peer may send only once it knows of our receive. That notice must not wait
  // behind our own data: the links would carry data in one direction at a time.
  int32_t Next();
  // What was started is complete.
  void Done(int32_t number);

  bool finished() const { return done_ == states_.size(); }
  const CollectiveSchedule& schedule() const { return *schedule_; }
  State state(int32_t number) const { return states_[static_cast<std::size_t>(number)]; }
  // The numbers of those that are started and not done: whom a rank waits for when a limit is over.
  std::vector<int32_t> Started() const;

 private:
  void AddReady(int32_t number);

  std::shared_ptr<const CollectiveSchedule> schedule_;
  std::vector<State> states_;              // by operation
  std::vector<uint8_t> missing_;           // by operation: so many of those that it comes after are not done
  std::vector<std::size_t> first_;         // by operation: where its followers begin; one more at the end
  std::vector<int32_t> followers_;         // those that come after it
  using Ready = std::pair<bool, int32_t>;  // whether it is no receive, and its number
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
  std::size_t done_ = 0;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_COLLECTIVES_EXECUTION_H
