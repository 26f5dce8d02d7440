// A collective on p modelled ranks: memory that notices misuse, and messages that find each other by sender and tag.

#ifndef PACELINE_UNIT_COLLECTIVES_JOB_H
#define PACELINE_UNIT_COLLECTIVES_JOB_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/collectives/execution.h"
#include "doctest/doctest.h"

namespace collectives {

using paceline::core::CollectiveExecution;
using paceline::core::CollectiveSchedule;
using paceline::core::Place;
using Operation = CollectiveSchedule::Operation;
using Kind = Operation::Kind;

// What stands in a place of memory, and what the operations under way do there.
template <typename Value>
struct Cell {
  Value value = {};
  int reading = 0, writing = 0;
};

// Of a rank.
template <typename Value>
struct Memory {
  std::vector<Cell<Value>> result;
  std::vector<std::vector<Cell<Value>>> scratch;
  std::vector<bool> full;  // by scratch block: filled, and not combined or sent

  // The range of the operation, in the result or in its scratch block.
  Cell<Value>* In(const Operation& operation, bool scratch_block) {
    return scratch_block ? scratch.at(static_cast<std::size_t>(operation.scratch)).data()
                         : result.data() + operation.offset;
  }
};

// A transfer that both sides have started.
struct Transfer {
  int32_t sender, send, receiver, receive;
};

// The ranks of one collective. How long things take, and in which order they happen, is up to who drives it.
template <typename Value>
class Job {
 public:
  using Schedules = std::vector<CollectiveSchedule>;  // by rank
  using Reduce = std::function<Value(const Value&, const Value&)>;
  using Bring = std::function<Value(int32_t rank, int64_t element)>;

  Job(Schedules schedules, int64_t elements, const Bring& bring, Reduce reduce) : reduce_(std::move(reduce)) {
    for (auto& schedule : schedules) {
      const auto rank = static_cast<int32_t>(executions_.size());
      Memory<Value>& memory = memories_.emplace_back();
      for (int64_t element = 0; element < elements; ++element) {
        memory.result.push_back({bring(rank, element)});
      }
      const auto blocks = static_cast<std::size_t>(schedule.scratch_blocks);
      memory.scratch.resize(blocks, std::vector<Cell<Value>>(static_cast<std::size_t>(schedule.scratch_count)));
      memory.full.resize(blocks);
      executions_.emplace_back(std::make_shared<const CollectiveSchedule>(std::move(schedule)));
    }
  }

  int32_t ranks() const { return static_cast<int32_t>(executions_.size()); }
  bool finished() const {
    for (const auto& execution : executions_) {
      if (!execution.finished()) {
        return false;
      }
    }
    return true;
  }
  const Operation& operation(int32_t rank, int32_t number) const {
    return executions_[static_cast<std::size_t>(rank)].schedule().operations.at(static_cast<std::size_t>(number));
  }
  std::vector<Value> Result(int32_t rank) const {
    std::vector<Value> values;
    for (const auto& cell : memories_[static_cast<std::size_t>(rank)].result) {
      values.push_back(cell.value);
    }
    return values;
  }

  // What the rank may start now, or negative. It is started: its ranges are in use.
  int32_t Next(int32_t rank) {
    const int32_t number = executions_[static_cast<std::size_t>(rank)].Next();
    if (number >= 0) {
      Use(rank, number, 1);
    }
    return number;
  }

  // A send or receive was started: true, and `transfer`, if the other side was before.
  bool Meets(int32_t rank, int32_t number, Transfer& transfer) {
    const Operation& message = operation(rank, number);
    const bool sends = message.kind == Kind::kSend;
    const auto key = sends ? std::tuple(rank, message.peer, message.tag) : std::tuple(message.peer, rank, message.tag);
    auto& [send, receive] = pending_.try_emplace(key, -1, -1).first->second;
    REQUIRE((sends ? send : receive) < 0);  // each sender, receiver and tag once
    REQUIRE(message.peer != rank);
    (sends ? send : receive) = number;
    transfer = {std::get<0>(key), send, std::get<1>(key), receive};
    return send >= 0 && receive >= 0;
  }

  // The values are on the other side.
  void Move(const Transfer& transfer) {
    const Operation& send = operation(transfer.sender, transfer.send);
    const Operation& receive = operation(transfer.receiver, transfer.receive);
    REQUIRE(send.count == receive.count);
    const auto* from = Of(transfer.sender).In(send, send.scratch >= 0);
    auto* into = Of(transfer.receiver).In(receive, receive.scratch >= 0);
    for (int64_t n = 0; n < send.count; ++n) {
      into[n].value = from[n].value;
    }
  }

  // Combines and copies are done here.
  void Done(int32_t rank, int32_t number) {
    const Operation& done = operation(rank, number);
    if (done.kind != Kind::kSend && done.kind != Kind::kReceive) {
      Compute(done, Of(rank));
    }
    Use(rank, number, -1);
    executions_[static_cast<std::size_t>(rank)].Done(number);
  }

 private:
  Memory<Value>& Of(int32_t rank) { return memories_[static_cast<std::size_t>(rank)]; }

  void Compute(const Operation& operation, Memory<Value>& memory) {
    auto* result = memory.In(operation, false);
    auto* scratch = memory.In(operation, true);
    for (int64_t n = 0; n < operation.count; ++n) {
      if (operation.kind == Kind::kCopy) {
        scratch[n].value = result[n].value;
      } else {
        auto& into = operation.kind == Kind::kCombine ? result[n].value : scratch[n].value;
        into = operation.scratch_first ? reduce_(scratch[n].value, result[n].value)
                                       : reduce_(result[n].value, scratch[n].value);
      }
    }
  }

  // change: 1 when the operation starts, -1 when it ends.
  void Use(int32_t rank, int32_t number, int change) {
    const Operation& operation = this->operation(rank, number);
    Memory<Value>& memory = Of(rank);
    const bool scratch = operation.scratch >= 0;
    if (scratch) {
      const auto block = static_cast<std::size_t>(operation.scratch);
      const bool ends = operation.kind == Kind::kCombine || operation.kind == Kind::kSend;
      const bool goes_on = operation.kind == Kind::kCombineAway;
      REQUIRE(operation.count <= static_cast<int64_t>(memory.scratch.at(block).size()));
      if (change > 0) {
        REQUIRE(memory.full[block] == (ends || goes_on));
      } else {
        memory.full[block] = !ends;
      }
      Touch(memory.In(operation, true), operation.count, !ends, change);
    }
    if (!scratch || (operation.kind != Kind::kReceive && operation.kind != Kind::kSend)) {
      REQUIRE(operation.offset + operation.count <= static_cast<int64_t>(memory.result.size()));
      const bool reads = operation.kind != Kind::kReceive && operation.kind != Kind::kCombine;
      Touch(memory.In(operation, false), operation.count, !reads, change);
    }
  }

  static void Touch(Cell<Value>* cells, int64_t count, bool writes, int change) {
    bool apart = true;
    for (int64_t n = 0; n < count; ++n) {
      (writes ? cells[n].writing : cells[n].reading) += change;
      apart = apart && cells[n].writing <= 1 && (cells[n].writing == 0 || cells[n].reading == 0);
    }
    REQUIRE(apart);  // nobody writes what another one reads or writes
  }

  Reduce reduce_;
  std::vector<CollectiveExecution> executions_;
  std::vector<Memory<Value>> memories_;
  std::map<std::tuple<int32_t, int32_t, int32_t>, std::pair<int32_t, int32_t>> pending_;  // sender, receiver, tag
};

// The schedules of all ranks.
template <typename Make>
std::vector<CollectiveSchedule> OnAll(int32_t ranks, const Make& make) {
  std::vector<CollectiveSchedule> schedules;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    schedules.push_back(make(Place{rank, ranks}));
  }
  return schedules;
}

}  // namespace collectives

#endif  // PACELINE_UNIT_COLLECTIVES_JOB_H
