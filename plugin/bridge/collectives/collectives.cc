#include "bridge/collectives/collectives.h"

#include <stdexcept>
#include <utility>

#include "bridge/collectives/meeting.h"
#include "bridge/collectives/operations.h"

namespace horovod::paceline {

void Collectives::BeginWorld() {
  flight_.reset();
  const std::lock_guard<std::mutex> lock(mutex_);
  sets_.clear();
}

void Collectives::NewProcessSet(int32_t process_set_id) {
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
    const auto choice = TheChoices().chosen();
    if (!set.met && choice.method != CollectiveChoice::kHorovods) {
      CheckSame(*transport, choice);
      if (choice.method == CollectiveChoice::kAuto) {
        set.choice.Know(Measure(*transport));
      }
      set.met = true;
    }
    flight_ = std::make_unique<Flight>(std::move(transport), space_);
    flying_set_ = process_set_id;
  }
  if (flight_->failed()) {
    throw std::runtime_error("A message before this one failed.");
  }
  return *flight_;
}

void Collectives::RoundPerformed(common::ProcessSet& /*process_set*/) {
  if (flight_ == nullptr) {
    return;
  }
  const auto flight = std::move(flight_);
  if (flight->Finish() && TheChoices().chosen().method == CollectiveChoice::kAuto) {
    Set(flying_set_).choice.Decide(flight->transport());
  }
}

uint32_t Collectives::NextSequence(int32_t process_set_id) { return Set(process_set_id).sequence++; }

AutoChoice& Collectives::Auto(int32_t process_set_id) { return Set(process_set_id).choice; }

}  // namespace horovod::paceline
