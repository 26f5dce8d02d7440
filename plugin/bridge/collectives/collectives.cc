#include "bridge/collectives/collectives.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "bridge/agree.h"
#include "bridge/collectives/meeting.h"
#include "bridge/collectives/operations.h"
#include "bridge/collectives/residuals.h"
#include "bridge/reserved_names.h"
#include "core/collectives/schedule.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

namespace {

// A model of a network that was looked at for milliseconds may be wrong by a factor; what was measured message by
// message differs from what comes by what else goes on.
constexpr double kWorthTryingByModel = 2, kWorthTryingByMeasurement = 1.25;

core::TimedChoice Predicted(const core::Network& network, int32_t ranks, core::AllreduceMethod method, double bytes) {
  auto best = core::BestAllreduce(method, network, ranks, bytes, core::BlockedMessage{}.ahead);
  best.block_bytes = std::min(best.block_bytes, static_cast<double>(core::UsualBlockBytes(method, ranks)));
  return best;
}

}  // namespace

void Collectives::BeginWorld() {
  flight_.reset();
  network_ = nullptr;
  trial_ = false;
  TheChoices().BeginWorld();
  const std::lock_guard<std::mutex> lock(mutex_);
  sets_.clear();
}

void Collectives::EndProcessSet(int32_t process_set_id) {
  TheChoices().Forget(process_set_id);
  TheResiduals().Forget(process_set_id);
  const std::lock_guard<std::mutex> lock(mutex_);
  sets_.erase(process_set_id);
}

void Collectives::AddOperations(common::HorovodGlobalState& state,
                                std::vector<std::shared_ptr<common::AllreduceOp>>& allreduces,
                                std::vector<std::shared_ptr<common::BroadcastOp>>& broadcasts) {
  space_.Limit(state.parameter_manager.TensorFusionThresholdBytes());
  allreduces.insert(allreduces.begin(), std::make_shared<OwnAllreduce>(state, *this));
  broadcasts.insert(broadcasts.begin(), std::make_shared<OwnBroadcast>(state, *this));
}

Collectives::OfSet& Collectives::Set(int32_t process_set_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sets_[process_set_id];
}

bool Collectives::Reaches(common::ProcessSet& process_set) const {
  return flight_ != nullptr || make_(process_set) != nullptr;
}

Flight& Collectives::In(common::ProcessSet& process_set, int32_t process_set_id) {
  if (flight_ == nullptr) {
    auto transport = make_(process_set);
    auto& set = Set(process_set_id);
    if (!set.met) {
      CheckSame(*transport, TheChoices().chosen());
      set.met = true;
    }
    flight_ = std::make_unique<Flight>(std::move(transport), space_, end_);
    flying_set_ = process_set_id;
  }
  if (flight_->failed()) {
    throw std::runtime_error("A message before this one failed.");
  }
  return *flight_;
}

// It went by Horovod's own collective, so it has ended, and at the same place in the sequence of operations everywhere.
void Collectives::AfterExecute(const Executed& executed) {
  if (executed.response.tensor_type() != common::DataType::HOROVOD_FLOAT64 || !executed.status.ok()) {
    return;
  }
  for (const auto& entry : executed.entries) {
    if (entry.tensor_name == std::string(kAgreementNames) + kNetworkAgreement && entry.output != nullptr) {
      const auto* values = static_cast<const double*>(entry.output->data());  // as agree.cc has them
      network_ = AllSame(values[0], values[1]) ? Probed() : nullptr;
    }
  }
}

ProbedNetwork Collectives::ProbedAmong(int32_t ranks) const {
  return network_ != nullptr && network_->ranks() == ranks ? network_ : nullptr;
}

void Collectives::RoundPerformed(common::ProcessSet& /*process_set*/) {
  if (flight_ == nullptr) {
    return;
  }
  const auto flight = std::move(flight_);
  if (flight->Finish()) {
    Set(flying_set_).choice.Decide(flight->transport());
  }
}

Collectives::Schedule Collectives::AllreduceSchedule(core::AllreduceMethod method, core::Place place,
                                                     const core::BlockedMessage& message) {
  return Remembered(static_cast<int64_t>(method), place, message,
                    [&] { return core::Allreduce(method, place, message); });
}

Collectives::Schedule Collectives::HalfSchedule(Half half, core::Place place, const core::BlockedMessage& message) {
  return Remembered(WayOf(half), place, message, [&] {
    return half == Half::kReduceScatter ? core::DirectReduceScatter(place, message)
                                        : core::DirectAllGather(place, message);
  });
}

// `what`: a method, or one of the ways in MessageTerms.
Collectives::Schedule Collectives::Remembered(int64_t what, core::Place place, const core::BlockedMessage& message,
                                              const std::function<core::CollectiveSchedule()>& make) {
  constexpr size_t kMostOperations = 131072;  // some MiB
  const std::array<int64_t, 5> key{what, place.rank, place.ranks, message.elements, message.block};
  if (const auto known = schedules_.find(key); known != schedules_.end()) {
    return known->second;
  }
  const auto made = std::make_shared<const core::CollectiveSchedule>(make());
  scheduled_ += made->operations.size();
  if (scheduled_ > kMostOperations) {
    schedules_.clear();
    scheduled_ = made->operations.size();
  }
  return schedules_[key] = made;
}

// What is in flight then was left there by an error that passed the end of the round.
void Collectives::End() {
  Fail(std::runtime_error("the world ended while messages were in flight"));
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (const auto left = Message::Unanswered(); left != 0) {
    std::fprintf(stderr, "Paceline: %lld messages were never answered\n", static_cast<long long>(left));
    std::abort();
  }
#endif
}

uint32_t Collectives::NextSequence(int32_t process_set_id) { return Set(process_set_id).sequence++; }

AutoChoice::Pick Collectives::PickFor(int32_t process_set_id, int64_t bytes, bool encoded, bool followed) {
  auto& choice = Set(process_set_id).choice;
  // What is asked of the other ranks goes over the same transport, and a trial has no other message beside it.
  if ((trial_ || !choice.Decided(bytes, encoded)) && !flight_->Finish()) {
    throw std::runtime_error("A message before this one failed.");
  }
  if (!choice.knows()) {
    const auto ranks = flight_->transport().size();
    const auto in_rank_order = TheChoices().chosen().reproducible;
    if (const auto probed = ProbedAmong(ranks)) {
      choice.Know([probed](auto method, double size) { return probed->Allreduce(method, std::max(size, 1.0)); },
                  kWorthTryingByMeasurement, in_rank_order);
    } else {
      const auto network = Measure(flight_->transport());
      choice.Know([network, ranks](auto method, double size) { return Predicted(network, ranks, method, size); },
                  kWorthTryingByModel, in_rank_order);
    }
  }
  const auto pick = choice.For(flight_->transport(), bytes, encoded, followed);
  trial_ = pick.trial;
  return pick;
}

void Collectives::Took(int32_t process_set_id, const AutoChoice::Pick& pick, double seconds) {
  Set(process_set_id).choice.Took(pick, seconds);
}

}  // namespace horovod::paceline
