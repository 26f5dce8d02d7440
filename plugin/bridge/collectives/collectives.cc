#include "bridge/collectives/collectives.h"

#include <mutex>

#include "bridge/collectives/operations.h"

namespace horovod::paceline {

namespace {

std::mutex choice_mutex;
CollectiveChoice& Choice() {
  static auto* choice = new CollectiveChoice;
  return *choice;
}

}  // namespace

void Collectives::Choose(const CollectiveChoice& choice) {
  const std::lock_guard<std::mutex> lock(choice_mutex);
  Choice() = choice;
}

CollectiveChoice Collectives::Chosen() {
  const std::lock_guard<std::mutex> lock(choice_mutex);
  return Choice();
}

void Collectives::NewProcessSet(int32_t process_set_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  sequences_.erase(process_set_id);
}

uint32_t Collectives::Next(int32_t process_set_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return sequences_[process_set_id]++;
}

void Collectives::AddOperations(common::HorovodGlobalState& state,
                                std::vector<std::shared_ptr<common::AllreduceOp>>& allreduces,
                                std::vector<std::shared_ptr<common::BroadcastOp>>& broadcasts) {
  allreduces.insert(allreduces.begin(), std::make_shared<OwnAllreduce>(state, *this));
  broadcasts.insert(broadcasts.begin(), std::make_shared<OwnBroadcast>(state, *this));
}

}  // namespace horovod::paceline

extern "C" {

// Before init(). `method`: a core::AllreduceMethod, or -1: Horovod's own collectives.
void horovod_paceline_collective(int32_t method, int64_t block_bytes) {
  horovod::paceline::Collectives::Choose({method, block_bytes});
}
}
