#include "bridge/pipelined/pipelined.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "bridge/cpu_tensor.h"
#include "bridge/packing.h"
#include "bridge/reserved_names.h"
#include "horovod/common/operations.h"

namespace horovod::paceline {

namespace {

using ::paceline::core::kMostK;
constexpr double kMostSyncCalls = 0x1p53;

std::string AnnouncementName() { return std::string(kAgreementNames) + "paceline.pipelined"; }

}  // namespace

std::shared_ptr<Channel> Pipelined::Of(Operation& operation, const ExchangeSettings& settings) {
  const auto& own = static_cast<const PipelinedSettings&>(settings);
  Use();
  return operation.KeptOrMade<Channel>(operation.name, own.k, own.sync_calls);
}

std::shared_ptr<Channel> Pipelined::Registered(int32_t process_set_id, const std::string& name) {
  const auto operation = operations_.Find(process_set_id, name);
  const auto registered = operation == nullptr ? nullptr : operation->registration();
  return registered == nullptr || registered->exchange != this ? nullptr : Of(*operation, *registered->settings);
}

void Pipelined::Drop(int32_t process_set_id, const std::string& name) {
  if (const auto operation = operations_.Find(process_set_id, name); operation != nullptr) {
    Unregistered(*operation);
  }
}

void Pipelined::Unregistered(Operation& operation) {
  if (Has(operation)) {
    operation.Drop();
  }
}

bool Pipelined::Settle(double limit_s) const {
  const auto all = operations_.AllKept<Channel>();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  return std::all_of(all.begin(), all.end(), [&](const std::shared_ptr<Channel>& channel) {
    const std::chrono::duration<double> left = end - std::chrono::steady_clock::now();
    return channel->Settle(std::max(left.count(), 0.0)).ok();
  });
}

void Pipelined::BeginWorld() {
  Exchange::BeginWorld();
  held_.Forget();
  pipelined_.clear();
  const std::lock_guard<std::mutex> lock(announcing_);
  announced_.clear();
}

void Pipelined::EndProcessSet(int32_t process_set_id) {
  held_.Forget(process_set_id);
  pipelined_.erase(process_set_id);
  const std::lock_guard<std::mutex> lock(announcing_);
  announced_.erase(process_set_id);
}

void Pipelined::Announce(int32_t process_set_id) {
  {
    const std::lock_guard<std::mutex> lock(announcing_);
    if (!announced_.insert(process_set_id).second) {
      return;
    }
  }
  const auto tensor = std::make_shared<CpuTensor>(common::DataType::HOROVOD_UINT8, 1);
  std::vector<std::shared_ptr<common::OpContext>> contexts = {CpuContext()};
  std::vector<std::shared_ptr<common::Tensor>> tensors = {tensor}, outputs = {tensor};
  std::vector<common::ReadyEventList> ready(1);
  std::vector<std::string> names = {AnnouncementName()};
  std::vector<common::StatusCallback> callbacks = {[](const common::Status&) {}};
  // Where it is refused, the call that it precedes is refused, too.
  common::EnqueueTensorAllreduces(contexts, tensors, outputs, ready, names, CPU_DEVICE_ID, callbacks,
                                  common::ReduceOp::SUM, 1.0, 1.0, process_set_id);
}

void Pipelined::Popped(common::ProcessSet& /*process_set*/, std::deque<common::Request>& messages) {
  if (!used()) {
    return;
  }
  held_.Filter(current_, messages, [&] {
    const auto all = operations_.AllKept<Channel>(current_);
    return std::all_of(all.begin(), all.end(), [](const auto& channel) { return channel->quiet(); });
  });
}

bool Pipelined::GoesAlone(const common::Response& response) const {
  if (response.response_type() != common::Response::ALLREDUCE || BytesOf(response, 0) < kAlone_bytes) {
    return false;
  }
  const auto& name = response.tensor_names()[0];
  const auto& devices = response.devices();
  return std::all_of(devices.begin(), devices.end(), [](int32_t device) { return device == CPU_DEVICE_ID; }) &&
         !special_(current_, name) && plan_.GroupOf(name) == nullptr;
}

void Pipelined::Fuse(common::Controller& /*controller*/, std::deque<common::Response>& responses,
                     common::ResponseList& list) {
  if (pipelined_.count(current_) == 0) {
    return;
  }
  std::deque<common::Response> others;
  for (auto& response : responses) {
    if (GoesAlone(response)) {
      list.add_response(std::move(response));
    } else {
      others.push_back(std::move(response));
    }
  }
  responses.swap(others);
}

void Pipelined::AfterExecute(const Executed& executed) {
  const auto& names = executed.response.tensor_names();
  static const auto* announcement = new std::string(AnnouncementName());
  if (std::find(names.begin(), names.end(), *announcement) != names.end()) {
    pipelined_.insert(current_);
  }
}

std::shared_ptr<const ExchangeSettings> Pipelined::Parse(const std::vector<double>& settings,
                                                         std::string& expected) const {
  expected = "two whole numbers (K, from 2 to " + std::to_string(kMostK) + "; synchronous calls that come first)";
  const auto whole = [](double one, double least, double most) {
    return one == std::floor(one) && one >= least && one <= most;
  };
  if (settings.size() != 2 || !whole(settings[0], 2, kMostK) || !whole(settings[1], 0, kMostSyncCalls)) {
    return nullptr;
  }
  auto parsed = std::make_shared<PipelinedSettings>();
  parsed->k = static_cast<int32_t>(settings[0]);
  parsed->sync_calls = static_cast<int64_t>(settings[1]);
  return parsed;
}

bool Pipelined::Takes(Operation& operation, const ExchangeSettings& settings) {
  const auto channel = Of(operation, settings);
  return channel == nullptr || !channel->TakeSync();
}

common::Status Pipelined::Call(ExchangeCall call) {
  Announce(call.operation.process_set_id);
  const auto channel = Of(call.operation, call.settings);
  return channel == nullptr ? Anothers(Title(call.operation.name))
                            : channel->Call(call.reducing, call.tensor, call.output, std::move(call.callback));
}

}  // namespace horovod::paceline
