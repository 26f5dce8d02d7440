#include "bridge/stages/stage_communicators.h"

#include <chrono>
#include <thread>
#include <utility>

namespace horovod::paceline {

StageCommunicators::StageCommunicators(MakeTransport make, const MakeEnd& end)
    : make_(std::move(make)), end_(end([this] { return Over(); })) {
  end_.settle = [this] { Settle(); };
}

void StageCommunicators::BeginWorld() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [number, communicator] : communicators_) {
    communicator->Forget();
  }
}

void StageCommunicators::AddOperations(common::HorovodGlobalState& state,
                                       std::vector<std::shared_ptr<common::AllreduceOp>>& /*allreduces*/,
                                       std::vector<std::shared_ptr<common::BroadcastOp>>& /*broadcasts*/) {
  state_ = &state;
}

bool StageCommunicators::Over() const {
  const auto* state = state_.load();
  return state == nullptr || state->shut_down || !state->initialization_done;
}

// Process sets end in agreement with the other ranks, over the connections of the global one, which ends last.
void StageCommunicators::Settle() const {
  constexpr std::chrono::seconds kLimit{5};
  constexpr std::chrono::milliseconds kLook{5};
  auto& all = state_.load()->process_set_table.Get(0);
  for (const auto until = Clock::now() + kLimit; all.initialization_done && Clock::now() < until;) {
    std::this_thread::sleep_for(kLook);
  }
}

int64_t StageCommunicators::Open(int32_t process_set_id, std::string& error) {
  auto communicator = Make(process_set_id, error);
  if (communicator == nullptr) {
    return -1;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  communicators_[++made_] = std::move(communicator);
  return made_;
}

std::shared_ptr<StageCommunicator> StageCommunicators::Make(int32_t process_set_id, std::string& error) {
  const auto title = "StageCommunicator on process set " + std::to_string(process_set_id) + ": ";
  if (Over()) {
    const auto why = end_.why();
    error = title + (why.empty() ? "Horovod is not initialised. Call hvd.init() on all ranks first."
                                 : why + " Start again with hvd.shutdown() and hvd.init().");
    return nullptr;
  }
  auto& table = state_.load()->process_set_table;
  const std::lock_guard<std::recursive_mutex> guard(table.mutex);
  if (!table.Contains(process_set_id) || !table.Get(process_set_id).initialization_done) {
    error = title + "there is no such set. Give hvd.init() its ranks, or add it on all ranks first.";
    return nullptr;
  }
  auto& process_set = table.Get(process_set_id);
  if (!process_set.IsCurrentProcessIncluded()) {
    error = title + "this rank is not one of it. Leave the call out on ranks that are not members.";
    return nullptr;
  }
  auto transport = make_(process_set);
  if (transport == nullptr) {
    error = title +
            "ranks are connected by MPI, which Horovod's background thread alone may call. Start them with Gloo: "
            "horovodrun --gloo, or HOROVOD_CONTROLLER=gloo and HOROVOD_CPU_OPERATIONS=gloo.";
    return nullptr;
  }
  return std::make_shared<StageCommunicator>(
      std::move(transport), CommunicatorPlace{process_set_id, process_set.registered_global_ranks}, end_);
}

std::shared_ptr<StageCommunicator> StageCommunicators::Find(int64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = communicators_.find(number);
  return found == communicators_.end() ? nullptr : found->second;
}

void StageCommunicators::Close(int64_t number) {
  const auto communicator = Find(number);
  if (communicator != nullptr) {
    communicator->Close();
    const std::lock_guard<std::mutex> lock(mutex_);
    communicators_.erase(number);
  }
}

}  // namespace horovod::paceline
