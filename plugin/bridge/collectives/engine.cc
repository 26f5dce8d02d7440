#include "bridge/collectives/engine.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bridge/lost_rank.h"

namespace horovod::paceline {

using Kind = Wire::Operation::Kind;

namespace {

// What the results of collectives in flight may have together, one alone excepted.
constexpr int64_t kWindow_bytes = int64_t{128} * 1024 * 1024;

}  // namespace

bool Engine::TooMuch(int64_t bytes) const {
  const auto& oldest = *active_.front();
  return begun_ - oldest.number >= transport_.window() || begun_bytes_ - oldest.before_bytes + bytes > kWindow_bytes;
}

void Engine::Begin(Collective collective) {
  const auto bytes = collective.bytes;
  moved_ = Transport::Clock::now();
  while (!active_.empty() && TooMuch(bytes)) {
    Progress(moved_ + transport_.limit());
  }
  active_.push_back(std::make_unique<Active>(std::move(collective), begun_, begun_bytes_));
  ++begun_;
  begun_bytes_ += bytes;
  Advance(*active_.back());
}

void Engine::Advance(Active& active) {
  for (int32_t number = 0; (number = active.execution.Next()) >= 0;) {
    Start(active, number);
  }
  if (active.execution.finished()) {
    const auto at = std::find_if(active_.begin(), active_.end(), [&](const auto& one) { return one.get() == &active; });
    const auto ended = std::move(*at);
    active_.erase(at);
    if (ended->about.done) {
      ended->about.done();
    }
  }
}

void Engine::Start(Active& active, int32_t number) {
  const auto& operation = active.about.schedule->operations[static_cast<size_t>(number)];
  if (operation.kind != Kind::kSend && operation.kind != Kind::kReceive) {
    active.wire.Compute(operation);
    active.execution.Done(number);
    return;
  }
  const auto tag = (uint64_t{active.about.sequence} << Transport::kMessageBits) | static_cast<uint64_t>(operation.tag);
  const auto range = active.wire.Begin(number);
  transport_.Expect(active.about.terms.Bits());
  const auto id = operation.kind == Kind::kSend ? transport_.Send(operation.peer, tag, range.data, range.bytes)
                                                : transport_.Receive(operation.peer, tag, range.data, range.bytes);
  transport_.Expect(0);
  started_[id] = {&active, number};
}

// What ranks are told that carry a message differently.
std::string Engine::Differs(const Collective& about, int32_t peer, const Completion& completion) const {
  const auto expected = ::paceline::core::MessageTerms::Of(completion.expected);
  const auto found = ::paceline::core::MessageTerms::Of(completion.found);
  std::string there;
  if (expected.tensors != found.tensors) {
    const auto its = std::find_if(active_.begin(), active_.end(),
                                  [&](const auto& one) { return one->about.terms.tensors == found.tensors; });
    there = its == active_.end() ? " (tensors that are not in flight here)" : " (" + (*its)->about.name + ")";
  }
  return ". Expected " + expected.Text() + " (" + about.name + "), found on rank " + std::to_string(peer) + " " +
         found.Text() + there +
         ". Submit the same tensors in the same sizes on all ranks, and start all ranks with the same PACELINE_* "
         "variables.";
}

void Engine::Finish() {
  moved_ = Transport::Clock::now();
  while (!active_.empty()) {
    Progress(moved_ + transport_.limit());
  }
}

bool Engine::Progress(Transport::Clock::time_point until) {
  const auto now = Transport::Clock::now();
  if (now - moved_ > transport_.limit()) {  // nobody looked
    moved_ = now;
  }
  const auto limit = moved_ + transport_.limit();
  Completion completion;
  if (!transport_.Wait(std::min(until, limit), completion)) {
    if (Transport::Clock::now() >= limit && !active_.empty()) {
      Fail("nothing has moved for " + std::to_string(transport_.limit().count()) + " ms while it waits for " +
           Waiting() + ". Is that rank alive, its network up, and PACELINE_COLLECTIVE the same on all ranks?");
    }
    return false;
  }
  const auto found = started_.find(completion.operation);
  if (found == started_.end()) {
    Fail("its transport reports an operation that it did not begin");
  }
  const auto [active, number] = found->second;
  started_.erase(found);
  if (!completion.error.empty()) {
    const auto& operation = active->about.schedule->operations[static_cast<size_t>(number)];
    Fail(std::string(operation.kind == Kind::kSend ? "sending to" : "receiving from") + " rank " +
             std::to_string(operation.peer) + " of " + active->about.name + " failed: " + completion.error +
             (completion.expected == completion.found ? "" : Differs(active->about, operation.peer, completion)),
         completion.of_here);
  }
  active->wire.Over(number);
  active->execution.Done(number);
  Advance(*active);
  moved_ = Transport::Clock::now();
  return true;
}

std::string Engine::Waiting() const {
  std::string text;
  for (const auto& one : active_) {
    for (const auto number : one->execution.Started()) {
      const auto& operation = one->about.schedule->operations[static_cast<size_t>(number)];
      text = "rank " + std::to_string(operation.peer) + " (" + one->about.name + ")";
      if (operation.kind == Kind::kReceive) {  // what is waited for, more than what is waited to be taken
        return text;
      }
    }
  }
  return text;
}

void Engine::Fail(const std::string& why, bool found_here) {
  transport_.Abort();
  const auto text =
      "Rank " + std::to_string(transport_.rank()) + " of " + std::to_string(transport_.size()) + ": " + why;
  // Memory of operations is touched until they have ended.
  Completion completion;
  while (!started_.empty() && transport_.WaitOn(Transport::Clock::now() + transport_.limit(), completion)) {
    started_.erase(completion.operation);
  }
  if (found_here) {
    throw FoundHere(text);
  }
  throw std::runtime_error(text);
}

}  // namespace horovod::paceline
