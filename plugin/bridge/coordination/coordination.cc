#include "bridge/coordination/coordination.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "horovod/common/logging.h"
#include "horovod/common/utils/env_parser.h"

namespace horovod::paceline {

namespace core = ::paceline::core;
using core::BitOperation;
using core::RoundMessage;

void Coordination::BeginWorld() {
  begun_ = false;
  const std::lock_guard<std::mutex> lock(mutex_);
  pacing_ = {};
  on_ = wanted_.load();
}

void Coordination::Ring() {
  const std::lock_guard<std::mutex> lock(mutex_);
  rung_ = true;
  changed_.notify_one();
}

void Coordination::Notify(const std::function<bool()>& pacing) {
  if (!on_) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pacing()) {
    rung_ = true;
    changed_.notify_one();
  }
}

void Coordination::WorkSubmitted() {
  Notify([&] { return pacing_.Submitted(); });
}

void Coordination::Held() {
  Notify([&] { return pacing_.Held(Clock::now()); });
}

void Coordination::WaitedFor() {
  Notify([&] { return pacing_.WaitedFor(); });
}

void Coordination::TakenUp() {
  if (on_) {
    const std::lock_guard<std::mutex> lock(mutex_);
    pacing_.TakenUp(Clock::now());
  }
}

void Coordination::Begin(common::HorovodGlobalState& state) {
  begun_ = true;
  if (state.control_operation != common::LibType::GLOO) {
    on_ = false;
    using namespace ::horovod::common;  // the LOG macro names Horovod's classes without their namespace
    if (state.global_controller->GetRank() == 0) {
      LOG(WARNING) << "Ranks coordinate in every cycle, not at events: over MPI a rank that sleeps cannot be woken. "
                      "Start them with Gloo (horovodrun --gloo, or HOROVOD_CONTROLLER=gloo), or set "
                      "PACELINE_DEBUG=wake=cycle.";
    }
    return;
  }
#ifdef __linux__
  ::pthread_setname_np(::pthread_self(), "horovod-events");  // for those who look: top -H
#endif
  // With the autotuner the cache comes and goes; without the cache there are no bits.
  auto& global = state.process_set_table.Get(0);
  global_ = state.global_controller->GetSize() > 1 ? global.gloo_context.ctx : nullptr;
  const bool bits = global.response_cache.capacity() > 0 && !state.parameter_manager.IsAutoTuning();
  const bool ints =
      state.dynamic_process_sets && static_cast<size_t>(state.global_controller->GetSize()) <= RoundMessage::kWords;
  entry_ = ints || (bits && !state.dynamic_process_sets) ? Entry::kBits : Entry::kOwnRound;
}

Rounds& Coordination::In(const std::shared_ptr<gloo::Context>& context) {
  auto& rounds = rounds_[context];
  if (rounds == nullptr) {
    rounds = std::make_unique<Rounds>(
        make_.rounds(context, context == global_ ? [this] { Ring(); } : std::function<void()>()));
  }
  return *rounds;
}

void Coordination::ForgetRemoved(common::HorovodGlobalState& state) {
  std::vector<std::shared_ptr<gloo::Context>> there;
  for (const auto id : state.process_set_table.Ids()) {
    there.push_back(state.process_set_table.Get(id).gloo_context.ctx);
  }
  const auto forget = [&](auto& all) {
    for (auto one = all.begin(); one != all.end();) {
      if (std::find(there.begin(), there.end(), one->first) != there.end()) {
        ++one;
        continue;
      }
      one->second->Leave();  // all ranks have agreed on the removal
      one = all.erase(one);
    }
  };
  forget(rounds_);
  forget(control_messages_);
}

bool Coordination::Sleep(common::HorovodGlobalState& state) {
  if (!on_) {
    return false;
  }
  if (!begun_) {
    Begin(state);
    if (!on_) {
      return false;
    }
  }
  if (rounds_.size() > 1) {
    ForgetRemoved(state);
  }
  AwaitReason(state);
  if (entry_ == Entry::kOwnRound && global_ != nullptr) {
    In(global_).Combine(BitOperation::kAnd, nullptr, 0);
  }
  return true;
}

void Coordination::AwaitReason(common::HorovodGlobalState& state) {
  const auto cycle = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double, std::milli>(state.parameter_manager.CycleTimeMs()));
  const auto idle = std::max(cycle, std::min<Clock::duration>(kHeartbeat, limit_()));
  auto* const rounds = global_ == nullptr ? nullptr : &In(global_);
  std::unique_lock<std::mutex> lock(mutex_);
  pacing_.Set(cycle, idle);
  while (true) {
    rung_ = false;
    lock.unlock();
    const bool called = rounds != nullptr && rounds->Called();
    lock.lock();
    const auto now = Clock::now();
    if ((called && pacing_.Called(now)) || state.shut_down || now >= pacing_.Due()) {
      break;
    }
    while (!rung_ && changed_.wait_until(lock, pacing_.Due()) == std::cv_status::no_timeout) {
    }
  }
  pacing_.Entered(Clock::now());
}

void Coordination::Cycle(common::HorovodGlobalState& /*state*/, common::ProcessSet& process_set,
                         int32_t /*process_set_id*/) {
  if (on_) {
    current_ = process_set.gloo_context.ctx;
  }
}

bool Coordination::CombineBits(BitOperation operation, long long* words, int count) {
  if (!on_ || !begun_) {
    return false;
  }
  if (current_->size == 1) {
    return true;
  }
  // More words than a message has: the first of them call the other ranks, and Horovod's own way does all.
  const auto first = std::min(static_cast<size_t>(count), RoundMessage::kWords);
  std::array<uint64_t, RoundMessage::kWords> bits;
  std::memcpy(bits.data(), words, first * sizeof(bits[0]));
  In(current_).Combine(operation, bits.data(), first);
  std::memcpy(words, bits.data(), first * sizeof(bits[0]));
  return first == static_cast<size_t>(count);
}

bool Coordination::GatherInts(const std::array<int, 2>& values, std::vector<int>& all) {
  if (!on_ || !begun_ || global_ == nullptr || static_cast<size_t>(global_->size) > RoundMessage::kWords) {
    return false;
  }
  // A word of each rank, of which all others leave the bits alone.
  static_assert(sizeof(values) == sizeof(uint64_t), "two numbers are a word");
  const auto ranks = static_cast<size_t>(global_->size);
  std::array<uint64_t, RoundMessage::kWords> words{};
  std::memcpy(&words.at(static_cast<size_t>(global_->rank)), values.data(), sizeof(values));
  In(global_).Combine(BitOperation::kOr, words.data(), ranks);
  all.resize(ranks * values.size());
  std::memcpy(all.data(), words.data(), ranks * sizeof(uint64_t));
  return true;
}

ControlMessages* Coordination::CurrentControlMessages() {
  if (!on_ || !begun_ || current_->size == 1 || current_->size > kMostRanks) {
    return nullptr;
  }
  auto& control_messages = control_messages_[current_];
  if (control_messages == nullptr) {
    control_messages = std::make_unique<ControlMessages>(make_.control_messages(current_));
  }
  return control_messages.get();
}

bool Coordination::SendRequests(const common::RequestList& requests) {
  auto* const control_messages = CurrentControlMessages();
  if (control_messages != nullptr) {
    std::string text;
    common::RequestList::SerializeToString(requests, text);
    control_messages->Send(text);
  }
  return control_messages != nullptr;
}

bool Coordination::GatherRequests(std::vector<common::RequestList>& by_rank) {
  auto* const control_messages = CurrentControlMessages();
  if (control_messages != nullptr) {
    for (const auto& text : control_messages->Gather()) {
      by_rank.emplace_back();
      if (!text.empty()) {
        common::RequestList::ParseFromBytes(by_rank.back(), reinterpret_cast<const uint8_t*>(text.data()));
      }
    }
  }
  return control_messages != nullptr;
}

bool Coordination::SendResponses(const common::ResponseList& responses) {
  auto* const control_messages = CurrentControlMessages();
  if (control_messages != nullptr) {
    std::string text;
    common::ResponseList::SerializeToString(responses, text);
    control_messages->Broadcast(text);
  }
  return control_messages != nullptr;
}

bool Coordination::ReceiveResponses(common::ResponseList& responses) {
  auto* const control_messages = CurrentControlMessages();
  if (control_messages != nullptr) {
    const auto text = control_messages->Receive();
    common::ResponseList::ParseFromBytes(responses, reinterpret_cast<const uint8_t*>(text.data()));
  }
  return control_messages != nullptr;
}

void Coordination::End() {
  if (!on_) {
    return;
  }
  on_ = false;
  try {
    for (const auto& [context, rounds] : rounds_) {
      rounds->Leave();
    }
    for (const auto& [context, control_messages] : control_messages_) {
      control_messages->Leave();
    }
  } catch (const std::exception& error) {
    using namespace ::horovod::common;  // as above
    LOG(DEBUG) << "Connections have ended, and with them what was posted: " << error.what();
  }
  rounds_.clear();
  control_messages_.clear();
  global_ = nullptr;
  current_ = nullptr;
}

}  // namespace horovod::paceline
