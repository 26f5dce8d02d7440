#include "bridge/leaving/leaving.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "bridge/cpu_tensor.h"
#include "bridge/packing.h"
#include "bridge/reserved_names.h"
#include "bridge/waking.h"

namespace horovod::paceline {

namespace {

constexpr int64_t kNumbers = 3;  // of each rank; combined by maximum, 0 means nothing

bool OfLeaving(const std::string& name) { return Begins(name, kLeavingNames); }

bool OfLeaving(const common::Response& response) {
  return !response.tensor_names().empty() && OfLeaving(response.tensor_names()[0]);
}

// "<asker>.<number>" behind the prefix.
std::string NameOf(int32_t asker, int64_t number) {
  return std::string(kLeavingNames) + std::to_string(asker) + "." + std::to_string(number);
}

common::Request RequestFor(const std::string& name, const common::Controller& controller) {
  common::Request request;
  request.set_request_type(common::Request::ALLREDUCE);
  request.set_request_rank(controller.GetRank());
  request.set_tensor_name(name);
  request.set_tensor_type(common::DataType::HOROVOD_FLOAT64);
  request.set_device(CPU_DEVICE_ID);
  request.set_group_id(NULL_GROUP_ID);
  request.set_prescale_factor(1.0);
  request.set_postscale_factor(1.0);
  request.set_reduce_op(common::ReduceOp::MAX);
  request.add_tensor_shape(kNumbers * controller.GetSize());
  return request;
}

}  // namespace

void Leaving::Through() { through_ = true; }

int64_t Leaving::Ask() {
  int64_t number = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    number = ++asked_;
  }
  NotifyWorkSubmitted();
  return number;
}

int64_t Leaving::Heard(std::vector<Standing>& ranks) const {
  std::lock_guard<std::mutex> lock(mutex_);
  ranks = ranks_;
  return answered_;
}

void Leaving::BeginWorld() {
  through_ = ended_ = false;
  joined_ = {};
  std::lock_guard<std::mutex> lock(mutex_);
  asked_ = sent_ = answered_ = 0;
  ranks_.clear();
}

void Leaving::Cycle(common::HorovodGlobalState& /*state*/, common::ProcessSet& process_set, int32_t process_set_id) {
  current_ = process_set_id;
  joined_.Return(process_set);
}

void Leaving::Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  if (current_ != 0) {
    return;
  }
  // This rank's part in an operation leaves a vote for it behind, which was counted already.
  messages.erase(std::remove_if(messages.begin(), messages.end(),
                                [](const common::Request& message) { return OfLeaving(message.tensor_name()); }),
                 messages.end());
  // Where ranks have joined, operations that not all ranks hand in are complete at other counts.
  if (process_set.joined || process_set.joined_size > 0) {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (sent_ < asked_) {
    sent_ = asked_;
    messages.push_back(RequestFor(NameOf(process_set.controller->GetRank(), sent_), *process_set.controller));
  }
}

// One rank's question is enough.
bool Leaving::OverrideReady(const common::Request& request, int count, bool ready) {
  return OfLeaving(request.tensor_name()) ? count == 1 : ready;
}

void Leaving::Fuse(common::Controller& controller, std::deque<common::Response>& responses,
                   common::ResponseList& list) {
  std::deque<common::Response> others;
  for (auto& one : responses) {
    if (!OfLeaving(one)) {
      others.push_back(std::move(one));
      continue;
    }
    std::vector<common::Response> alone;
    alone.push_back(std::move(one));
    Pack(list, {controller.TensorFusionThresholdBytes()}, std::move(alone));
  }
  responses.swap(others);
}

bool Leaving::Cacheable(const common::Response& response) { return !OfLeaving(response); }

Standing Leaving::Own(common::ProcessSet& process_set) const {
  const auto submitted = process_set.tensor_queue.Submitted();
  const bool waits = std::any_of(submitted.begin(), submitted.end(),
                                 [&](const std::string& name) { return !Begins(name, kReserved) && !partial_(name); });
  return {through_, waits, updates_()};
}

void Leaving::BeforeExecute(common::ProcessSet& process_set, const common::Response& response) {
  if (!OfLeaving(response)) {
    return;
  }
  const auto& name = response.tensor_names()[0];
  auto& controller = *process_set.controller;
  const auto buffer =
      std::make_shared<CpuTensor>(common::DataType::HOROVOD_FLOAT64, kNumbers * int64_t{controller.GetSize()});
  const auto own = Own(process_set);
  double* numbers = buffer->values() + kNumbers * controller.GetRank();
  numbers[0] = own.through ? 1 : 0;
  numbers[1] = own.waits ? 1 : 0;
  numbers[2] = static_cast<double>(own.updates);
  common::TensorTableEntry entry;
  entry.tensor_name = name;
  entry.context = CpuContext();
  entry.tensor = buffer;
  entry.output = buffer;
  entry.process_set_id = 0;
  entry.device = CPU_DEVICE_ID;
  entry.callback = [](const common::Status&) {};
  auto vote = RequestFor(name, controller);
  process_set.tensor_queue.AddToTensorQueue(entry, vote);
  joined_.Leave(process_set);
}

void Leaving::AfterExecute(const Executed& executed) {
  if (OfLeaving(executed.response)) {
    joined_.Return(executed.process_set);
  }
}

void Leaving::Performed(const Executed& executed) {
  if (!OfLeaving(executed.response) || !executed.status.ok() || executed.entries.empty()) {
    return;
  }
  const auto* values = static_cast<const double*>(executed.entries[0].output->data());
  const auto size = static_cast<size_t>(executed.process_set.controller->GetSize());
  const auto mine = NameOf(executed.process_set.controller->GetRank(), 0);
  const auto& name = executed.response.tensor_names()[0];
  std::lock_guard<std::mutex> lock(mutex_);
  ranks_.resize(size);
  for (size_t rank = 0; rank < size; ++rank) {
    const double* numbers = values + static_cast<size_t>(kNumbers) * rank;
    ranks_[rank] = {numbers[0] > 0, numbers[1] > 0, static_cast<int64_t>(numbers[2])};
  }
  if (Begins(name, std::string_view(mine).substr(0, mine.size() - 1))) {
    answered_ = std::stoll(name.substr(mine.size() - 1));
  }
}

}  // namespace horovod::paceline
