#include "bridge/coordination/rounds.h"

#include <algorithm>
#include <utility>

#include "gloo/common/error.h"

namespace horovod::paceline {

using ::paceline::core::BitOperation;

Rounds::Rounds(std::unique_ptr<Transport> transport)
    : transport_(std::move(transport)), phases_(::paceline::core::RoundPhases(transport_->rank(), transport_->size())) {
  for (auto& slot : slots_) {
    slot.sent.resize(phases_.size());
    for (const auto& phase : phases_) {
      slot.told.emplace_back(phase.from.size());
    }
  }
  Post(1);
}

void Rounds::Post(uint64_t sequence) {
  auto& slot = SlotOf(sequence);
  for (size_t phase = 0; phase < phases_.size(); ++phase) {
    for (size_t n = 0; n < phases_[phase].from.size(); ++n) {
      auto& told = slot.told[phase][n];
      told.here = false;
      const auto peer = phases_[phase].from[n];
      // Messages of one phase come in the order of their rounds.
      const auto id = transport_->Receive(peer, phase, &told.message, sizeof(told.message));
      operations_[id] = {&slot, &told, peer};
    }
  }
}

void Rounds::Send(Slot& slot, size_t phase, const Message& message) {
  slot.sent[phase] = message;
  for (const auto peer : phases_[phase].to) {
    ++slot.sending;
    const auto id = transport_->Send(peer, phase, &slot.sent[phase], message.bytes());
    operations_[id] = {&slot, nullptr, peer};
  }
}

bool Rounds::Take(Transport::Clock::time_point until) {
  Completion completion;
  if (!transport_->Wait(until, completion)) {
    return false;
  }
  const auto found = operations_.find(completion.operation);
  const auto operation = found->second;
  operations_.erase(found);
  if (!completion.error.empty()) {
    Fail("coordinating with rank " + std::to_string(operation.peer) + " failed: " + completion.error);
  }
  if (operation.told == nullptr) {
    --operation.slot->sending;
  } else {
    operation.told->here = true;
  }
  return true;
}

template <typename Done>
void Rounds::Await(int32_t peer, const Done& done) {
  const auto limit = Transport::Clock::now() + transport_->limit();
  while (!done()) {
    if (!Take(limit)) {
      Fail("rank " + std::to_string(peer) + " has not come to coordination round " + std::to_string(done_ + 1) +
           " for " + std::to_string(transport_->limit().count()) +
           " ms. Is it alive, its network up, and PACELINE_WAKE the same on all ranks?");
    }
  }
}

bool Rounds::Called() {
  while (Take({})) {
  }
  const auto& told = SlotOf(done_ + 1).told;
  return std::any_of(told.begin(), told.end(), [](const auto& phase) {
    return std::any_of(phase.begin(), phase.end(), [](const auto& one) { return one.here; });
  });
}

void Rounds::Combine(BitOperation operation, uint64_t* words, size_t count) {
  const auto sequence = done_ + 1;
  auto& slot = SlotOf(sequence);
  Await(phases_.empty() ? 0 : phases_[0].to[0], [&] { return slot.sending == 0; });
  Post(sequence + 1);
  auto known = ::paceline::core::MessageOf(sequence, operation, words, count);
  for (size_t phase = 0; phase < phases_.size(); ++phase) {
    Send(slot, phase, known);
    for (size_t n = 0; n < slot.told[phase].size(); ++n) {
      const auto& told = slot.told[phase][n];
      const auto peer = phases_[phase].from[n];
      Await(peer, [&] { return told.here; });
      if (!::paceline::core::Combine(known, told.message)) {
        Fail("rank " + std::to_string(peer) + " is in coordination " + Text(told.message) + " while this one is in " +
             Text(known) + ". Ranks have not done the same before.");
      }
    }
  }
  done_ = sequence;
  std::copy_n(known.words.begin(), known.count, words);
}

void Rounds::Leave() {
  // Others wait for what is still being sent.
  for (auto& slot : slots_) {
    Await(phases_.empty() ? 0 : phases_[0].to[0], [&] { return slot.sending == 0; });
  }
  transport_->Leave();
}

void Rounds::Fail(const std::string& why) {
  transport_->GiveUp();
  // Another rank may be the cause: this kind of error has the roll called (failure.h).
  throw ::gloo::IoException("Rank " + std::to_string(transport_->rank()) + " of " + std::to_string(transport_->size()) +
                            ": " + why);
}

}  // namespace horovod::paceline
