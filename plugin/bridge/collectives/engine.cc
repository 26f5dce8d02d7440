#include "bridge/collectives/engine.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/codecs/combine.h"

namespace horovod::paceline {

using ::paceline::core::BytesOf;

namespace {

constexpr uint32_t kTagBits = 24;  // schedules have at most 2^20 blocks

}  // namespace

void Engine::Begin(Collective collective) {
  const auto schedule = collective.schedule;
  const auto scratch_bytes = schedule->scratch_blocks * schedule->scratch_count * BytesOf(collective.dtype);
  active_.push_back(
      std::make_unique<Active>(Active{std::move(collective), ::paceline::core::CollectiveExecution(schedule),
                                      std::vector<uint8_t>(static_cast<size_t>(scratch_bytes))}));
  Advance(*active_.back());
}

void* Engine::Place(Active& active, const Operation& operation) {
  const auto bytes = BytesOf(active.about.dtype);
  if (operation.scratch >= 0) {
    return active.scratch.data() + operation.scratch * active.about.schedule->scratch_count * bytes;
  }
  return static_cast<uint8_t*>(active.about.result) + operation.offset * bytes;
}

void Engine::Advance(Active& active) {
  for (int32_t number = 0; (number = active.execution.Next()) >= 0;) {
    Start(active, number);
  }
}

void Engine::Start(Active& active, int32_t number) {
  const auto& operation = active.about.schedule->operations[static_cast<size_t>(number)];
  const auto element_bytes = BytesOf(active.about.dtype);
  const auto bytes = static_cast<size_t>(operation.count * element_bytes);
  const auto tag = (uint64_t{active.about.sequence} << kTagBits) | static_cast<uint64_t>(operation.tag);
  auto* range = static_cast<uint8_t*>(active.about.result) + operation.offset * element_bytes;
  switch (operation.kind) {
    case Operation::Kind::kSend:
      started_[transport_.Send(operation.peer, tag, Place(active, operation), bytes)] = {&active, number};
      return;
    case Operation::Kind::kReceive:
      started_[transport_.Receive(operation.peer, tag, Place(active, operation), bytes)] = {&active, number};
      return;
    case Operation::Kind::kCombine:
      ::paceline::core::Combine(active.about.dtype, active.about.op, range, Place(active, operation), operation.count);
      break;
    case Operation::Kind::kCopy:
      std::memcpy(Place(active, operation), range, bytes);
      break;
  }
  active.execution.Done(number);
}

void Engine::Finish() {
  const auto finished = [](const auto& one) { return one->execution.finished(); };
  auto limit = Transport::Clock::now() + transport_.limit();
  while (!std::all_of(active_.begin(), active_.end(), finished)) {
    Completion completion;
    if (!transport_.Wait(limit, completion)) {
      Fail("nothing has moved for " + std::to_string(transport_.limit().count()) + " ms while it waits for " +
           Waiting() + ". Is that rank alive, its network up, and PACELINE_COLLECTIVE the same on all ranks?");
    }
    const auto found = started_.find(completion.operation);
    const auto [active, number] = found->second;
    started_.erase(found);
    if (!completion.error.empty()) {
      const auto& operation = active->about.schedule->operations[static_cast<size_t>(number)];
      Fail(std::string(operation.kind == Operation::Kind::kSend ? "sending to" : "receiving from") + " rank " +
           std::to_string(operation.peer) + " of " + active->about.name + " failed: " + completion.error);
    }
    active->execution.Done(number);
    Advance(*active);
    limit = Transport::Clock::now() + transport_.limit();
  }
  active_.clear();
}

std::string Engine::Waiting() const {
  std::string text;
  for (const auto& one : active_) {
    for (const auto number : one->execution.Started()) {
      const auto& operation = one->about.schedule->operations[static_cast<size_t>(number)];
      text = "rank " + std::to_string(operation.peer) + " (" + one->about.name + ")";
      if (operation.kind == Operation::Kind::kReceive) {  // what is waited for, more than what is waited to be taken
        return text;
      }
    }
  }
  return text;
}

void Engine::Fail(const std::string& why) {
  transport_.GiveUp();
  const auto text =
      "Rank " + std::to_string(transport_.rank()) + " of " + std::to_string(transport_.size()) + ": " + why;
  // Memory of operations is touched until they have ended.
  Completion completion;
  while (!started_.empty() && transport_.Wait(Transport::Clock::now() + transport_.limit(), completion)) {
    started_.erase(completion.operation);
  }
  active_.clear();
  throw std::runtime_error(text);
}

}  // namespace horovod::paceline
