#include "bridge/armed/armed.h"

#include <algorithm>
#include <chrono>

#include "bridge/reserved_names.h"
#include "bridge/waking.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

namespace {

// A rank that has offered the first group waits longer for others to do so: it may be far ahead of them.
constexpr int64_t kAhead = 10;
// Plans whose steps are remembered, and messages of a step.
constexpr size_t kMostPlans = 64;
constexpr size_t kMostMessages = 4096;
constexpr size_t kAlign_bytes = 64;

}  // namespace

void Armed::BeginWorld() {
  Disarm();
  responses_.clear();
  responses_before_.clear();
  last_group_ = -1;
  shapes_.clear();
  proved_.clear();
  all_ = nullptr;
  watch_.Follow(0);
  followed_ = {};
  round_.clear();
  others_ = false;
  held_.clear();
  offered_.clear();
  reported_ = false;
  status_.steps = status_.messages = status_.fallbacks = 0;
  status_.attention = core::Attention::kNone;
  UpdateStatus();
}

core::Need Armed::Queued(const common::Request& request, int32_t /*process_set_id*/) {
  // Before or behind what Wait does, in one order for both: either this thread sees that it is waited for, or Wait sees
  // what was added.
  if (++added_ >= wake_at_) {
    const std::lock_guard<std::mutex> lock(mutex_);
    woken_.notify_one();
    reducer_.Wake();
  }
  return awaited_.Of(request.tensor_name());
}

void Armed::Disarm() {
  awaited_.Stop();
  messages_.clear();
  members_.clear();
  first_.clear();
  released_ = false;
}

void Armed::UpdateStatus() {
  status_.state = watch_.state();
  status_.why = watch_.why();
}

void Armed::Cycle(common::HorovodGlobalState& state, common::ProcessSet& process_set, int32_t process_set_id) {
  state_ = &state;
  if (process_set_id == 0) {
    all_ = &process_set;
  }
}

// --- hook popped

const Armed::Member* Armed::MemberOf(const common::Request& request) const {
  const auto found = members_.find(request.tensor_name());
  return found == members_.end() ? nullptr : &found->second;
}

void Armed::Release(std::deque<common::Request>& messages) {
  for (auto& request : held_) {
    messages.push_back(std::move(request));
  }
  held_.clear();
}

bool Armed::FirstOffered() const {
  return std::all_of(first_.begin(), first_.end(), [&](const auto& name) { return offered_.count(name) > 0; });
}

// Whether what is held has waited for too long for the step to begin.
bool Armed::Impatient() {
  const auto now_ns = Nanoseconds(Clock::now());
  const auto timeout_ns = followed_.timeout_ns;
  waited_ns_ += std::min(now_ns - looked_ns_, timeout_ns / 8 + 1);
  looked_ns_ = now_ns;
  return !held_.empty() && waited_ns_ > timeout_ns * (FirstOffered() ? kAhead : 1);
}

// What is held is let go in a round, if it must.
Clock::duration Armed::SleepLimit() {
  constexpr int64_t kParts = 8;
  return held_.empty() ? Clock::duration::max() : std::chrono::nanoseconds(followed_.timeout_ns / kParts);
}

void Armed::Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  const auto state = watch_.state();
  if (&process_set != all_ || (state == State::kOff && held_.empty())) {
    return;
  }
  std::deque<common::Request> popped;
  popped.swap(messages);
  if (state != State::kArmed) {
    Release(popped);
  }
  for (auto& request : popped) {
    const auto& name = request.tensor_name();
    if (state == State::kArmed && !released_ && MemberOf(request) != nullptr) {
      offered_.erase(name);
      held_.push_back(std::move(request));
      waited_ns_ = 0;
      continue;
    }
    if (request.request_type() == common::Request::ALLREDUCE && plan_.GroupNumberOf(name) >= 0) {
      offered_.insert(name);
      if (state != State::kArmed) {
        shapes_[name] = request.tensor_shape();
      }
    }
    messages.push_back(std::move(request));
  }
  if (state == State::kArmed && Impatient()) {
    released_ = true;
    for (const auto& request : held_) {
      offered_.insert(request.tensor_name());
    }
    Release(messages);
  }
}

// --- what was performed, and when steps are armed

bool Armed::Fits(const common::Response& response) const {
  if (!GroupMessage::Fits(response)) {
    return false;
  }
  const auto& names = response.tensor_names();
  for (size_t n = 0; n < names.size(); ++n) {
    const auto bytes = response.tensor_sizes()[n] * static_cast<int64_t>(common::DataType_Size(response.tensor_type()));
    if (special_(0, names[n]) || !reducer_.Exact(names[n], bytes)) {
      return false;
    }
  }
  return true;
}

// Negative where messages are never alike.
int64_t Armed::KeyOf(const common::Response& response) {
  if (responses_.size() == kMostMessages) {
    return -1;
  }
  const auto key = static_cast<int64_t>(std::hash<std::string>()(GroupMessage::Signature(response)) >> 1U);
  responses_.try_emplace(key, response);
  return key;
}

void Armed::AfterExecute(const Executed& executed) {
  if (&executed.process_set != all_) {
    return;
  }
  const auto& response = executed.response;
  const auto& names = response.tensor_names();
  for (const auto& name : names) {
    offered_.erase(name);
  }
  const auto group = names.empty() ? -1 : plan_.GroupNumberOf(names[0]);
  others_ = others_ || group != 0;
  if (watch_.state() == State::kOff || names.empty() || Begins(names[0], kControlNames)) {
    return;
  }
  core::WatchedMessage message;
  message.group = group;
  if (message.group >= 0) {
    if (group == 0 && last_group_ != 0) {  // a step begins
      responses_before_.swap(responses_);
      responses_.clear();
    }
    last_group_ = group;
    message.key = KeyOf(response);
    message.fits = message.key >= 0 && (watch_.state() == State::kArmed || Fits(response));
  }
  round_.push_back(message);
}

void Armed::Arm(const common::ProcessSet& process_set) {
  const core::Place place{process_set.controller->GetRank(), process_set.controller->GetSize()};
  messages_.clear();
  members_.clear();
  first_.clear();
  const auto& step = watch_.step();
  const auto behind = static_cast<size_t>(watch_.first());
  std::vector<std::string> others;
  size_t bytes = 0;
  for (size_t n = 0; n < step.size(); ++n) {
    const auto found = responses_.find(step[n].key);
    const auto& response = found == responses_.end() ? responses_before_.at(step[n].key) : found->second;
    const auto& names = response.tensor_names();
    if (n < behind) {
      first_.insert(names.begin(), names.end());
      continue;
    }
    for (size_t tensor = 0; tensor < names.size(); ++tensor) {
      members_[names[tensor]] = {static_cast<int32_t>(messages_.size()), tensor, shapes_[names[tensor]]};
    }
    others.insert(others.end(), names.begin(), names.end());
    const auto parts = names.size() == 1 && HalfOf(names[0]) == Half::kBoth ? plan_.PartsOf(names[0]) : 1;
    for (int32_t part = 0; part < parts; ++part) {
      messages_.emplace_back(response, place, part, parts);
      bytes = std::max(bytes, messages_.back().bytes());
    }
  }
  awaited_.Expect({first_.begin(), first_.end()}, others);
  if (proved_.size() < kMostPlans) {
    proved_[followed_.digest] = step;
  }
  // Beginning where processors like it.
  buffer_bytes_ = (bytes + kAlign_bytes - 1) / kAlign_bytes * kAlign_bytes;
  buffers_.resize(std::max(buffers_.size(), kTogether * buffer_bytes_));
  looked_ns_ = Nanoseconds(Clock::now());
}

// If the round had only the first group, that group is sent beside the following ones.
void Armed::RoundBegun(common::ProcessSet& process_set) {
  if (&process_set == all_ && watch_.state() == State::kArmed && !round_.empty() && !others_) {
    Follow(process_set);
  }
}

void Armed::RoundPerformed(common::ProcessSet& process_set) {
  if (&process_set == all_) {
    Follow(process_set);
    others_ = false;
  }
}

void Armed::Follow(common::ProcessSet& process_set) {
  const bool armed = watch_.state() == State::kArmed;
  const auto followed = plan_.followed();
  if (followed.number != followed_.number) {
    followed_ = followed;
    followed_.timeout_ns =
        std::min({followed.timeout_ns, kLongestTimeout_ns, int64_t{reducer_.Limit(process_set).count()} / 2});
    Disarm();
    const auto proved = proved_.find(followed.digest);
    watch_.Follow(followed.armed && reducer_.Supports(process_set) ? followed.groups : 0,
                  proved == proved_.end() ? std::vector<core::WatchedMessage>() : proved->second);
    round_.clear();
    UpdateStatus();
    if (armed) {
      NotifyWorkSubmitted();  // operations that needed no round need one now
    }
    return;
  }
  if (round_.empty()) {
    return;
  }
  for (const auto& message : round_) {
    const auto before = watch_.state();
    watch_.Performed(message);
    if (watch_.state() == State::kArmed && before == State::kProved) {
      Arm(process_set);
    }
  }
  round_.clear();
  if (watch_.state() == State::kRunning) {
    Step(process_set);
  }
  if (watch_.state() != State::kArmed) {
    released_ = false;
    awaited_.Stop();
    if (armed) {
      NotifyWorkSubmitted();  // as above
    }
  }
  UpdateStatus();
}

}  // namespace horovod::paceline
