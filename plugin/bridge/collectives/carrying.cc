// Collectives as a MessageReducer.

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bridge/collectives/collectives.h"
#include "bridge/collectives/parts.h"
#include "core/collectives/algorithms.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

bool Collectives::Exact(const std::string& name, int64_t bytes) const {
  return bytes < TheChoices().chosen().codec_least_bytes || CodecOf(Encoding::Of(name)) == nullptr;
}

std::chrono::nanoseconds Collectives::Limit(common::ProcessSet& process_set) const {
  const auto transport = make_(process_set);
  return transport == nullptr ? std::chrono::nanoseconds(0) : transport->limit();
}

void Collectives::GoFastest(int32_t process_set_id, const std::unordered_set<std::string>& names) {
  for (const auto& name : names) {
    TheChoices().GoFastest(process_set_id, name);
  }
}

void Collectives::GoAsChosen(int32_t process_set_id, const std::unordered_set<std::string>& names) {
  for (const auto& name : names) {
    TheChoices().GoAsChosen(process_set_id, name);
  }
}

AutoChoice::Pick Collectives::PickToCarry(int32_t process_set_id, const Values& values, int32_t ranks, bool followed) {
  const auto chosen = TheChoices().chosen();
  const auto automatic = chosen.method == CollectiveChoice::kAuto || chosen.method == CollectiveChoice::kHorovods ||
                         values.half != Half::kBoth;
  if (automatic && ranks > 1 && values.half == Half::kBoth) {
    return PickFor(process_set_id, values.elements * core::BytesOf(values.dtype), false, followed);
  }
  AutoChoice::Pick pick;
  pick.way.method = automatic ? core::AllreduceMethod::kDirect : static_cast<core::AllreduceMethod>(chosen.method);
  pick.way.block_bytes = chosen.block_bytes > 0 ? chosen.block_bytes : core::UsualBlockBytes(pick.way.method, ranks);
  return pick;
}

void Collectives::Carry(const std::function<void()>& part) {
  try {
    part();
  } catch (const std::exception& error) {
    const auto why = end_.others(error);
    Fail(error);
    throw std::runtime_error(why);
  }
}

void Collectives::Fail(const std::exception& error) {
  if (flight_ != nullptr) {
    flight_->Fail(error);  // closes connections: nobody touches memory from here on
    flight_.reset();
  }
}

void Collectives::Begin(common::ProcessSet& process_set, int32_t process_set_id, const Values& values, bool followed,
                        const std::string& name, std::function<void()> done) {
  auto& flight = In(process_set, process_set_id);
  const auto& transport = flight.transport();
  Carry([&] {
    const core::Place place{transport.rank(), transport.size()};
    const auto element_bytes = core::BytesOf(values.dtype);
    const auto pick = PickToCarry(process_set_id, values, place.ranks, followed);
    const auto block = std::max<int64_t>(1, pick.way.block_bytes / element_bytes);
    Collective one;
    one.name = name;
    one.dtype = values.dtype;
    one.op = core::ReduceOp::kSum;
    one.result = values.data;
    one.bytes = values.elements * element_bytes;
    one.sequence = NextSequence(process_set_id);
    one.terms = {static_cast<int32_t>(pick.way.method), 0, block, values.tensors};
    if (values.half == Half::kBoth) {
      one.schedule = AllreduceSchedule(pick.way.method, place, {values.elements, block});
    } else {
      one.terms.way = WayOf(values.half);
      one.schedule = HalfSchedule(values.half, place, {values.elements, block});
    }
    one.done = [this, process_set_id, pick, done = std::move(done), start = Clock::now()] {
      if (pick.trial) {
        Took(process_set_id, pick, std::chrono::duration<double>(Clock::now() - start).count());
      }
      done();
    };
    flight.Begin(std::move(one));
  });
}

void Collectives::Progress(std::chrono::steady_clock::time_point until) {
  // How often to look at what the transport cannot be told of.
  constexpr std::chrono::microseconds kLook{200};
  auto& transport = flight_->transport();
  {
    const std::lock_guard<std::mutex> lock(wake_mutex_);
    if (woken_) {
      woken_ = false;
      return;
    }
    waiting_ = &transport;
  }
  const auto rest = [&] {
    const std::lock_guard<std::mutex> lock(wake_mutex_);
    waiting_ = nullptr;
    woken_ = false;
  };
  Carry([&] {
    try {
      flight_->Progress(transport.wakes() ? until : std::min(until, Clock::now() + kLook));
    } catch (...) {
      rest();
      throw;
    }
  });
  rest();
}

void Collectives::Wake() {
  const std::lock_guard<std::mutex> lock(wake_mutex_);
  woken_ = true;
  if (waiting_ != nullptr) {
    waiting_->Wake();
  }
}

void Collectives::Settle() {
  if (flight_ != nullptr && flight_->Finish()) {
    Set(flying_set_).choice.Decide(flight_->transport());
  }
}

void Collectives::Finish(common::ProcessSet& process_set) { RoundPerformed(process_set); }

}  // namespace horovod::paceline
