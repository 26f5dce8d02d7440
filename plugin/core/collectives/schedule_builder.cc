#include "core/collectives/schedule_builder.h"

#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <string>

namespace paceline::core {

namespace {

constexpr int64_t kMostBlocks = 1048576;  // 2^20

void Require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::invalid_argument(what);
  }
}

std::string Text(int64_t number) { return std::to_string(number); }

}  // namespace

ScheduleBuilder::ScheduleBuilder(Place place, const BlockedMessage& message) : place_(place), message_(message) {
  Require(place.ranks >= 1, "a collective needs at least one rank, not " + Text(place.ranks));
  Require(place.rank >= 0 && place.rank < place.ranks, "there is no rank " + Text(place.rank) + " in a collective of " +
                                                           Text(place.ranks) + " ranks, counted from 0");
  Require(message.elements >= 0, "a message cannot have " + Text(message.elements) + " elements");
  Require(message.block >= 1, "a block must have at least one element, not " + Text(message.block));
  Require(message.ahead >= 1, "at least one message must be under way at a time, not " + Text(message.ahead));
  Require(message.scratch >= 2, "at least two blocks of scratch memory are needed, not " + Text(message.scratch));
}

ScheduleBuilder::Ranges ScheduleBuilder::Blocks(int64_t offset, int64_t count) {
  Require(static_cast<int64_t>(ranges_.size()) + count / message_.block < kMostBlocks,
          Text(message_.elements) + " elements in blocks of " + Text(message_.block) + " are more than " +
              Text(kMostBlocks) + " blocks; take larger blocks");
  Ranges ranges;
  for (const int64_t end = offset + count; offset < end; offset += ranges.back().count) {
    ranges.push_back({ranges_.size(), offset, std::min(message_.block, end - offset)});
    ranges_.emplace_back();
  }
  return ranges;
}

ScheduleBuilder::Ranges ScheduleBuilder::Whole() {
  message_.block = std::max<int64_t>(message_.elements, 1);
  return Blocks(0, message_.elements);
}

std::vector<ScheduleBuilder::Ranges> ScheduleBuilder::Shards() {
  std::vector<Ranges> shards;
  for (int32_t rank = 0; rank < place_.ranks; ++rank) {
    const auto shard = ShardOf(message_.elements, {rank, place_.ranks});
    shards.push_back(Blocks(shard.offset, shard.count));
  }
  return shards;
}

ScheduleBuilder::Operation& ScheduleBuilder::Append(Operation::Kind kind, const Range& range) {
  Operation& operation = schedule_.operations.emplace_back();
  operation.kind = kind;
  operation.offset = range.offset;
  operation.count = range.count;
  return operation;
}

ScheduleBuilder::Operation& ScheduleBuilder::AppendMessage(Operation::Kind kind, const Range& range, int32_t peer) {
  Operation& operation = Append(kind, range);
  auto& messages = messages_[{kind, peer}];
  operation.peer = peer;
  operation.tag = static_cast<int32_t>(messages.size());
  const auto ahead = static_cast<std::size_t>(message_.ahead);
  if (messages.size() >= ahead) {
    After(messages[messages.size() - ahead]);
  }
  messages.push_back(last());
  return operation;
}

void ScheduleBuilder::After(int32_t earlier) {
  auto& after = schedule_.operations.back().after;
  if (earlier >= 0 && std::find(after.begin(), after.end(), earlier) == after.end()) {
    const auto free = std::find(after.begin(), after.end(), -1);
    assert(free != after.end());
    *free = earlier;
  }
}

void ScheduleBuilder::Reads(Cell& cell) {
  After(cell.writer);
  cell.reader = last();
  ++cell.readers;
}

void ScheduleBuilder::Writes(Cell& cell) {
  assert(cell.readers <= 1);  // or it would have to wait for all of them
  After(cell.reader >= 0 ? cell.reader : cell.writer);
  cell = {last()};
}

ScheduleBuilder::Cell& ScheduleBuilder::UseScratch(Operation& operation, int32_t scratch) {
  operation.scratch = scratch;
  schedule_.scratch_blocks = std::max(schedule_.scratch_blocks, scratch + 1);
  schedule_.scratch_count = std::max(schedule_.scratch_count, operation.count);
  scratch_.resize(static_cast<std::size_t>(schedule_.scratch_blocks));
  return scratch_[static_cast<std::size_t>(scratch)];
}

int32_t ScheduleBuilder::Send(const Range& range, int32_t peer) {
  AppendMessage(Operation::Kind::kSend, range, peer);
  Reads(CellOf(range));
  return last();
}

void ScheduleBuilder::SendAdopted(const Range& range, int32_t peer) {
  Send(range, peer);
  schedule_.operations.back().adopt = true;
}

void ScheduleBuilder::Receive(const Range& range, int32_t peer) {
  AppendMessage(Operation::Kind::kReceive, range, peer);
  Writes(CellOf(range));
}

void ScheduleBuilder::ReceiveScratch(const Range& range, int32_t peer, int32_t scratch) {
  Operation& operation = AppendMessage(Operation::Kind::kReceive, range, peer);
  Writes(UseScratch(operation, scratch));
}

void ScheduleBuilder::Combine(const Range& range, int32_t scratch, Left left) {
  Operation& operation = Append(Operation::Kind::kCombine, range);
  operation.scratch_first = left == Left::kScratch;
  Reads(UseScratch(operation, scratch));
  Writes(CellOf(range));
}

void ScheduleBuilder::CombineAway(const Range& range, int32_t scratch, Left left) {
  Operation& operation = Append(Operation::Kind::kCombineAway, range);
  operation.scratch_first = left == Left::kScratch;
  Reads(CellOf(range));
  Writes(UseScratch(operation, scratch));
}

void ScheduleBuilder::SendScratch(const Range& range, int32_t peer, int32_t scratch) {
  Operation& operation = AppendMessage(Operation::Kind::kSend, range, peer);
  Reads(UseScratch(operation, scratch));
}

void ScheduleBuilder::Copy(const Range& range, int32_t scratch) {
  Operation& operation = Append(Operation::Kind::kCopy, range);
  Reads(CellOf(range));
  Writes(UseScratch(operation, scratch));
}

}  // namespace paceline::core
