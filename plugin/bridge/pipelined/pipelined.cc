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

std::shared_ptr<Channel> Pipelined::Of(int32_t process_set_id, const std::string& name,
                                       const PipelinedSettings& settings) {
  return channels_.FindOr(process_set_id, name,
                          [&] { return std::make_shared<Channel>(name, settings.k, settings.sync_calls); });
}

bool Pipelined::Settle(double limit_s) const {
  const auto all = channels_.All();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  return std::all_of(all.begin(), all.end(), [&](const std::shared_ptr<Channel>& channel) {
    const std::chrono::duration<double> left = end - std::chrono::steady_clock::now();
    return channel->Settle(std::max(left.count(), 0.0)).ok();
  });
}

void Pipelined::BeginWorld() {
  channels_.Reset();
  held_.Forget();
}

void Pipelined::Popped(common::ProcessSet& /*process_set*/, std::deque<common::Request>& messages) {
  if (!channels_.used()) {
    return;
  }
  held_.Filter(current_, messages, [&] {
    const auto all = channels_.All(current_);
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

bool Pipelined::Takes(int32_t process_set_id, const std::string& name, const ExchangeSettings& settings) {
  const auto& own = static_cast<const PipelinedSettings&>(settings);
  return !Of(process_set_id, name, own)->TakeSync();
}

common::Status Pipelined::Call(ExchangeCall call) {
  const auto& settings = static_cast<const PipelinedSettings&>(call.settings);
  const auto channel = Of(call.reducing.process_set_id, call.name, settings);
  return channel->Call(call.reducing, call.tensor, call.output, std::move(call.callback));
}

}  // namespace horovod::paceline
