#include "bridge/pipelined/pipelined.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace horovod::paceline {

namespace {

using ::paceline::core::kMostK;
constexpr double kMostSyncCalls = 0x1p53;

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
  const auto channel = Of(call.operation, call.settings);
  return channel == nullptr ? Anothers(Title(call.operation.name))
                            : channel->Call(call.reducing, call.tensor, call.output, std::move(call.callback));
}

}  // namespace horovod::paceline
