// Recursive doubling: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// IJHPCA 2005. Where we differ: of a pair that begins together the lower rank goes on, so that operands stay in order.

#include <cstdint>

#include "core/collectives/algorithms.h"
#include "core/collectives/schedule_builder.h"

namespace paceline::core {

// With p = 2^m + r ranks, r < 2^m, ranks 2 j and 2 j + 1 begin as a pair for all j < r: the odd one gives what it has
// and is given the result at the end. The 2^m others have indices in the order of ranks; in round d those whose indices
// differ in bit d exchange. What each has then is the reduction of neighbouring ranks, the same bits on all of these:
// the lower ranks' part is the left operand on both sides.
//
// Each round has a scratch block of its own, so that all receives are posted at once and no message waits.
CollectiveSchedule DoublingAllreduce(Place place, const BlockedMessage& message) {
  ScheduleBuilder builder(place, message);
  using Left = ScheduleBuilder::Left;
  const auto whole = builder.Whole();
  if (whole.empty()) {
    return builder.Take();
  }
  const auto& range = whole.front();
  int32_t core = 1;
  while (core <= place.ranks / 2) {
    core *= 2;
  }
  const int32_t pairs = place.ranks - core;
  const bool paired = place.rank < 2 * pairs;
  int32_t scratch = 0;
  if (paired && place.rank % 2 == 1) {
    builder.Send(range, place.rank - 1);
    builder.Receive(range, place.rank - 1);
    return builder.Take();
  }
  if (paired) {
    builder.ReceiveScratch(range, place.rank + 1, scratch);
    builder.Combine(range, scratch++, Left::kResult);
  }
  const int32_t index = paired ? place.rank / 2 : place.rank - pairs;
  for (int32_t distance = 1; distance < core; distance *= 2) {
    const bool lower = (index / distance) % 2 == 0;
    const int32_t other = lower ? index + distance : index - distance;
    const int32_t peer = other < pairs ? 2 * other : other + pairs;
    builder.Send(range, peer);
    builder.ReceiveScratch(range, peer, scratch);
    builder.Combine(range, scratch++, lower ? Left::kResult : Left::kScratch);
  }
  if (paired) {
    builder.Send(range, place.rank + 1);
  }
  return builder.Take();
}

}  // namespace paceline::core
