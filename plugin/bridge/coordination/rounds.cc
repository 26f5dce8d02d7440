#include "bridge/coordination/rounds.h"

#include <algorithm>
#include <string>
#include <utility>

namespace horovod::paceline {

using ::paceline::core::BitOperation;

Rounds::Rounds(std::unique_ptr<Transport> transport)
    : posts_(std::move(transport)), phases_(::paceline::core::RoundPhases(posts_.rank(), posts_.size())) {
  for (auto& slot : slots_) {
    slot.sent.resize(phases_.size());
    for (const auto& phase : phases_) {
      slot.received.emplace_back(phase.from.size());
    }
  }
  Post(1);
}

void Rounds::Post(uint64_t sequence) {
  auto& slot = SlotOf(sequence);
  for (size_t phase = 0; phase < phases_.size(); ++phase) {
    for (size_t n = 0; n < phases_[phase].from.size(); ++n) {
      auto& received = slot.received[phase][n];
      // Messages of one phase come in the order of their rounds.
      posts_.Receive(phases_[phase].from[n], phase, &received.message, sizeof(received.message), received.coming);
    }
  }
}

bool Rounds::Called() {
  posts_.Look();
  const auto& received = SlotOf(done_ + 1).received;
  return std::any_of(received.begin(), received.end(), [](const auto& phase) {
    return std::any_of(phase.begin(), phase.end(), [](const auto& one) { return one.coming == 0; });
  });
}

void Rounds::AwaitSent(Slot& slot) {
  const auto peer = phases_.empty() ? 0 : phases_[0].to[0];
  posts_.Await(slot.sending, peer, posts_.limit(), [] { return "has not taken what was sent to it, or others,"; });
}

void Rounds::Combine(BitOperation operation, uint64_t* words, size_t count) {
  const auto sequence = done_ + 1;
  auto& slot = SlotOf(sequence);
  AwaitSent(slot);
  Post(sequence + 1);
  // Ranks that differ in `wake` meet nobody in the first round, and hear why before Gloo's limit is over for
  // others.
  const auto limit = done_ == 0 ? posts_.limit() / 2 : posts_.limit();
  auto known = ::paceline::core::MessageOf(sequence, operation, words, count);
  for (size_t phase = 0; phase < phases_.size(); ++phase) {
    slot.sent[phase] = known;
    for (const auto peer : phases_[phase].to) {
      posts_.Send(peer, phase, &slot.sent[phase], known.bytes(), slot.sending);
    }
    for (size_t n = 0; n < slot.received[phase].size(); ++n) {
      const auto& received = slot.received[phase][n];
      const auto peer = phases_[phase].from[n];
      posts_.Await(received.coming, peer, limit,
                   [&] { return "has not come to coordination round " + std::to_string(sequence); });
      if (!::paceline::core::Combine(known, received.message)) {
        posts_.Fail("rank " + std::to_string(peer) + " is in coordination " + Text(received.message) +
                        ", expected was " + Text(known) +
                        ". Do all ranks run the same Horovod, with the same settings?",
                    true);
      }
    }
  }
  done_ = sequence;
  std::copy_n(known.words.begin(), known.count, words);
}

void Rounds::Leave() {
  for (auto& slot : slots_) {
    AwaitSent(slot);  // others may wait for it
  }
  posts_.Leave();
}

}  // namespace horovod::paceline
