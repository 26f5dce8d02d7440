// How the algorithms write their schedules: as one operation after the other; what may overlap follows from it.

#ifndef PACELINE_CORE_COLLECTIVES_SCHEDULE_BUILDER_H
#define PACELINE_CORE_COLLECTIVES_SCHEDULE_BUILDER_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/collectives/schedule.h"

namespace paceline::core {

// An algorithm cuts the message into ranges and appends operations on whole ranges, in an order in which they could be
// done one by one. As in a processor that executes out of order, an operation depends on what wrote the range or
// scratch block that it reads, and on what read or wrote the one that it writes; beside that, on the message `ahead`
// before it between the same ranks. Nothing waits without end as long as all operations of all ranks, a send and its
// receive being one, can be put into one order in which each comes after those that it depends on.
class ScheduleBuilder {
 public:
  struct Range {
    std::size_t number;
    int64_t offset, count;
  };
  using Ranges = std::vector<Range>;

  // Throws std::invalid_argument as in algorithms.h.
  ScheduleBuilder(Place place, const BlockedMessage& message);

  // The elements from `offset` on, in blocks; the last one may be smaller. Each element in one range of a schedule.
  // Throws std::invalid_argument if these are too many blocks.
  Ranges Blocks(int64_t offset, int64_t count);
  // The whole message, as one range or none.
  Ranges Whole();
  // The shards of all ranks (ShardOf), in blocks.
  std::vector<Ranges> Shards();

  // Returns the number of the operation.
  int32_t Send(const Range& range, int32_t peer);
  // All ranks go on with what is sent (Operation::adopt).
  void SendAdopted(const Range& range, int32_t peer);
  void Receive(const Range& range, int32_t peer);
  void ReceiveScratch(const Range& range, int32_t peer, int32_t scratch);
  enum class Left : bool { kResult, kScratch };
  void Combine(const Range& range, int32_t scratch, Left left);
  // Into scratch, which goes on; the result is left alone.
  void CombineAway(const Range& range, int32_t scratch, Left left);
  void SendScratch(const Range& range, int32_t peer, int32_t scratch);
  void Copy(const Range& range, int32_t scratch);
  // The operation appended last comes after this one, too; negative: after none.
  void After(int32_t earlier);

  CollectiveSchedule Take() { return std::move(schedule_); }

 private:
  using Operation = CollectiveSchedule::Operation;

  // A range or scratch block: the operation that wrote it last, and the last one that read it since.
  struct Cell {
    int32_t writer = -1, reader = -1, readers = 0;
  };

  Operation& Append(Operation::Kind kind, const Range& range);
  Operation& AppendMessage(Operation::Kind kind, const Range& range, int32_t peer);
  int32_t last() const { return static_cast<int32_t>(schedule_.operations.size()) - 1; }
  void Reads(Cell& cell);
  void Writes(Cell& cell);
  Cell& CellOf(const Range& range) { return ranges_[range.number]; }
  Cell& UseScratch(Operation& operation, int32_t scratch);

  Place place_;
  BlockedMessage message_;
  CollectiveSchedule schedule_;
  std::vector<Cell> ranges_, scratch_;
  std::map<std::pair<Operation::Kind, int32_t>, std::vector<int32_t>> messages_;  // by direction and peer
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_COLLECTIVES_SCHEDULE_BUILDER_H
