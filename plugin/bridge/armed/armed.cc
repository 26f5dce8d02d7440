#include "bridge/armed/armed.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "bridge/reserved_names.h"
#include "bridge/waking.h"
#include "horovod/common/logging.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

using core::Attention;

namespace {

// How often a rank that waits for a tensor looks at what it is not told of.
constexpr int64_t kLook_ns = 10'000'000;
// How long it waits for the next tensor while another operation of its own waits.
constexpr int64_t kOthers_ns = 10'000'000;
// The plan's patience, but all ranks must wait less than a transport does, which is 30 s if nothing else is said.
constexpr int64_t kMostPatience_ns = 5'000'000'000;
// A rank that has offered the first group waits longer for others to do so: it may be far ahead of them.
constexpr int64_t kAhead = 10;
// Plans whose steps are remembered, and different messages of all of them.
constexpr size_t kMostPlans = 64;
constexpr size_t kMostMessages = 4096;
// Messages that may be under way together.
constexpr int32_t kTogether = 2;
constexpr size_t kAlign_bytes = 64;

const char* Text(Attention why) {
  switch (why) {
    case Attention::kMissing:
      return "a gradient did not come in time";
    case Attention::kOther:
      return "another operation was waited for before the step's last gradient was handed in";
    case Attention::kRepeated:
      return "a gradient came twice before another one came";
    case Attention::kChanged:
      return "a gradient changed its shape, type, operation or codec";
    case Attention::kOffered:
      return "gradients were handed in before those of the first group";
    case Attention::kJoined:
      return "this rank has joined";
    case Attention::kShutdown:
      return "this rank shuts down";
    default:
      return "another rank gave them up, whose log says why";
  }
}

}  // namespace

// A step that is under way.
struct Armed::Run {
  Run(common::ProcessSet& set, std::vector<int32_t> tensors) : process_set(set), step(std::move(tensors), kTogether) {}

  common::ProcessSet& process_set;
  core::ArmedStep step;
  std::vector<std::vector<common::Request>> taken;  // by message
  std::vector<int64_t> start_ns;                    // by message: when it began
  std::vector<bool> there;                          // by message: all ranks' values are
  std::vector<common::Request> others;              // that are no part of this step
  std::unordered_set<std::string> came;             // names of its tensors
  bool foreign = false;                             // among the others are some that no plan says
  int64_t waited_ns = 0;                            // since the last tensor of this step
};

void Armed::BeginWorld() {
  Disarm();
  keys_.clear();
  responses_.clear();
  shapes_.clear();
  proved_.clear();
  all_ = nullptr;
  watch_.Follow(0);
  followed_ = {};
  round_.clear();
  held_.clear();
  offered_.clear();
  told_ = false;
  status_.steps = status_.messages = status_.given_up = 0;
  status_.attention = 0;
  Tell();
}

void Armed::Added() {
  // Before or behind what Wait does, in one order for both: either this thread sees that it is waited for, or Wait sees
  // what was added.
  if (++added_ >= wake_at_) {
    const std::lock_guard<std::mutex> lock(mutex_);
    woken_.notify_one();
    carrier_.Wake();
  }
}

void Armed::Disarm() {
  messages_.clear();
  members_.clear();
  first_.clear();
  released_ = false;
}

void Armed::Tell() {
  status_.state = static_cast<int32_t>(watch_.state());
  status_.why = static_cast<int32_t>(watch_.why());
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
  const auto patience_ns = std::min(followed_.patience_ns, kMostPatience_ns);
  waited_ns_ += std::min(now_ns - looked_ns_, patience_ns / 8 + 1);
  looked_ns_ = now_ns;
  return !held_.empty() && waited_ns_ > patience_ns * (FirstOffered() ? kAhead : 1);
}

// What is held is let go in a round, if it must.
Clock::duration Armed::SleepLimit() {
  constexpr int64_t kParts = 8;
  return held_.empty() ? Clock::duration::max() : std::chrono::nanoseconds(followed_.patience_ns / kParts);
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
    if (special_(0, names[n]) || !carrier_.Exact(0, names[n], bytes)) {
      return false;
    }
  }
  return true;
}

// Negative where messages are never alike.
int64_t Armed::KeyOf(const common::Response& response) {
  const auto signature = GroupMessage::Signature(response);
  const auto known = keys_.find(signature);
  if (known != keys_.end() || responses_.size() == kMostMessages) {
    return known == keys_.end() ? -1 : known->second;
  }
  responses_.push_back(response);
  return keys_[signature] = static_cast<int64_t>(responses_.size()) - 1;
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
  if (watch_.state() == State::kOff || names.empty() || Begins(names[0], kControlNames)) {
    return;
  }
  core::WatchedMessage message;
  message.group = plan_.GroupNumberOf(names[0]);
  if (message.group >= 0) {
    message.key = KeyOf(response);
    message.fits = message.key >= 0 && (watch_.state() == State::kArmed || Fits(response));
  }
  round_.push_back(message);
}

void Armed::Arm() {
  messages_.clear();
  members_.clear();
  first_.clear();
  const auto& step = watch_.step();
  const auto behind = static_cast<size_t>(watch_.first());
  size_t bytes = 0;
  for (size_t n = 0; n < step.size(); ++n) {
    const auto& response = responses_[static_cast<size_t>(step[n].key)];
    const auto& names = response.tensor_names();
    if (n < behind) {
      first_.insert(names.begin(), names.end());
      continue;
    }
    for (size_t tensor = 0; tensor < names.size(); ++tensor) {
      members_[names[tensor]] = {static_cast<int32_t>(messages_.size()), tensor, shapes_[names[tensor]]};
    }
    messages_.emplace_back(response);
    bytes = std::max(bytes, messages_.back().bytes());
  }
  if (proved_.size() < kMostPlans) {
    proved_[followed_.digest] = step;
  }
  // Beginning where processors like it.
  buffer_bytes_ = (bytes + kAlign_bytes - 1) / kAlign_bytes * kAlign_bytes;
  buffers_.resize(std::max(buffers_.size(), kTogether * buffer_bytes_));
  choices_ = carrier_.Choices();
  looked_ns_ = Nanoseconds(Clock::now());
}

void Armed::RoundPerformed(common::ProcessSet& process_set) {
  if (&process_set != all_) {
    return;
  }
  const auto followed = plan_.followed();
  if (followed.number != followed_.number) {
    followed_ = followed;
    Disarm();
    const auto proved = proved_.find(followed.digest);
    watch_.Follow(followed.armed && carrier_.Carries(process_set) ? followed.groups : 0,
                  proved == proved_.end() ? std::vector<core::WatchedMessage>() : proved->second);
    round_.clear();
    Tell();
    return;
  }
  if (round_.empty()) {
    return;
  }
  for (const auto& message : round_) {
    const auto before = watch_.state();
    watch_.Performed(message);
    if (watch_.state() == State::kArmed && before == State::kProved) {
      Arm();
    }
  }
  round_.clear();
  if (watch_.state() == State::kRunning) {
    Step(process_set);
  }
  if (watch_.state() != State::kArmed) {
    released_ = false;
  }
  Tell();
}

// --- an armed step

uint8_t* Armed::BufferOf(size_t message) { return buffers_.data() + message % kTogether * buffer_bytes_; }

void Armed::Take(Run& run, common::Request request) {
  const auto& name = request.tensor_name();
  const auto* member = MemberOf(request);
  if (member == nullptr || run.came.count(name) > 0) {
    const bool again = member != nullptr || first_.count(name) > 0;
    if (again && run.step.lacks()) {
      run.step.Raise(Attention::kRepeated);
    }
    run.foreign = run.foreign || !(again || Begins(name, kControlNames));
    run.others.push_back(std::move(request));
    return;
  }
  run.came.insert(name);
  run.waited_ns = 0;
  const auto& message = messages_[static_cast<size_t>(member->message)];
  if (!message.Asks(request, member->place) || request.tensor_shape() != member->shape) {
    run.step.Raise(Attention::kChanged);
  }
  run.step.Arrived(member->message);
  run.taken[static_cast<size_t>(member->message)].push_back(std::move(request));
}

void Armed::Drain(Run& run) {
  std::deque<common::Request> popped;
  run.process_set.tensor_queue.PopMessagesFromQueue(popped);
  for (auto& request : popped) {
    Take(run, std::move(request));
  }
}

void Armed::Send(Run& run) {
  const auto number = static_cast<size_t>(run.step.begun());
  const auto& message = messages_[number];
  auto* buffer = BufferOf(number);
  run.start_ns[number] = Nanoseconds(Clock::now());
  if (!run.step.flag() && !message.Pack(run.process_set.tensor_queue, buffer).ok()) {
    run.step.Raise(Attention::kMissing);
  }
  message.SetFlag(buffer, run.step.flag());
  run.step.Begin();
  carrier_.Begin(run.process_set, 0, message.Values(buffer),
                 message.names()[0] + (message.names().size() > 1 ? ", ..." : ""),
                 [&run, number] { run.there[number] = true; });
  Receive(run);
}

// Messages end in their order.
void Armed::Receive(Run& run) {
  while (run.step.ended() < run.step.begun() && run.there[static_cast<size_t>(run.step.ended())]) {
    const auto number = static_cast<size_t>(run.step.ended());
    const auto& message = messages_[number];
    if (run.step.End(message.Flag(BufferOf(number)))) {
      message.Complete(*state_, run.process_set, BufferOf(number), run.start_ns[number]);
      ++status_.messages;
    }
  }
}

bool Armed::OthersWait(const Run& run) const {
  if (run.foreign) {
    return true;
  }
  for (const auto id : state_->process_set_table.Ids()) {
    if (id != 0 && !state_->process_set_table.Get(id).tensor_queue.Handed().empty()) {
      return true;
    }
  }
  return false;
}

void Armed::Wait(Run& run) {
  const auto seen = added_.load();
  Drain(run);
  if (run.step.next() != core::ArmedStep::Next::kWait) {
    return;
  }
  const auto before = Clock::now();
  const auto travelling = run.step.ended() < run.step.begun();
  // A group is not complete before as many came as it lacks.
  wake_at_ = run.step.lacks() ? seen + run.step.lacking() : INT64_MAX;
  if (travelling) {
    if (added_ < wake_at_) {
      carrier_.Progress(before + std::chrono::nanoseconds(kLook_ns));
      Receive(run);
    }
  } else {
    std::unique_lock<std::mutex> lock(mutex_);
    woken_.wait_for(lock, std::chrono::nanoseconds(kLook_ns), [&] { return added_ >= wake_at_; });
  }
  wake_at_ = INT64_MAX;
  const auto patience_ns = std::min(followed_.patience_ns, kMostPatience_ns);
  if (!travelling) {
    run.waited_ns += std::min(Nanoseconds(Clock::now()) - Nanoseconds(before), patience_ns / 8 + kLook_ns);
  }
  if (const auto why = why_failed_(); !why.empty()) {
    throw std::runtime_error(why);
  }
  Drain(run);
  if (state_->shut_down) {
    run.step.Raise(Attention::kShutdown);
  } else if (travelling) {  // whoever waits for what travels hands in nothing meanwhile
    return;
  } else if (run.waited_ns >= patience_ns) {
    run.step.Raise(Attention::kMissing);
  } else if (run.waited_ns >= kOthers_ns && OthersWait(run)) {
    run.step.Raise(Attention::kOther);
  }
}

void Armed::Step(common::ProcessSet& process_set) {
  std::vector<int32_t> tensors;
  tensors.reserve(messages_.size());
  for (const auto& message : messages_) {
    tensors.push_back(static_cast<int32_t>(message.names().size()));
  }
  Run run(process_set, std::move(tensors));
  run.taken.resize(messages_.size());
  run.start_ns.resize(messages_.size());
  run.there.resize(messages_.size(), false);
  if (process_set.joined) {
    run.step.Raise(Attention::kJoined);
  }
  if (std::any_of(members_.begin(), members_.end(), [&](const auto& one) { return offered_.count(one.first) > 0; })) {
    run.step.Raise(Attention::kOffered);
  }
  if (carrier_.Choices() != choices_) {
    if (!std::all_of(messages_.begin(), messages_.end(), [&](const auto& one) { return Fits(one.response()); })) {
      run.step.Raise(Attention::kChanged);
    } else {
      choices_ = carrier_.Choices();
    }
  }
  for (auto& request : held_) {
    Take(run, std::move(request));
  }
  held_.clear();
  for (auto next = run.step.next(); next != core::ArmedStep::Next::kEnd; next = run.step.next()) {
    if (next == core::ArmedStep::Next::kBegin) {
      Send(run);
    } else {
      Wait(run);
    }
  }
  carrier_.End(process_set);
  taken_up_();
  Drain(run);  // what comes from here on says so
  std::deque<common::Request> back;
  for (auto n = static_cast<size_t>(run.step.done()); n < run.taken.size(); ++n) {
    back.insert(back.end(), run.taken[n].begin(), run.taken[n].end());
  }
  back.insert(back.end(), run.others.begin(), run.others.end());
  process_set.tensor_queue.PushMessagesToQueue(back);
  if (!back.empty() || state_->shut_down || OthersWait(run)) {
    HandedIn();
  }
  watch_.Ended(run.step.complete());
  waited_ns_ = 0;
  looked_ns_ = Nanoseconds(Clock::now());
  if (run.step.complete()) {
    ++status_.steps;
    return;
  }
  ++status_.given_up;
  status_.attention = static_cast<int32_t>(run.step.attention());
  if (watch_.state() == State::kOff && !told_) {
    told_ = true;
    using namespace ::horovod::common;  // the LOG macro names Horovod's classes without their namespace
    LOG(WARNING, process_set.controller->GetRank())
        << "Paceline: steps are negotiated in full again, armed steps were given up " << core::StepWatch::kMostStrikes
        << " times; the last time " << Text(run.step.attention()) << ". docs/armed.md says what can be done.";
  }
}

}  // namespace horovod::paceline
