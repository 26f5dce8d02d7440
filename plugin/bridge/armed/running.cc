// How an armed step runs; see armed.h.

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>

#include "bridge/armed/armed.h"
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
  run.start_ns[number] = message.goes_on() ? run.start_ns[number - 1] : Nanoseconds(Clock::now());
  if (!run.step.flag() && !message.Pack(run.process_set.tensor_queue, buffer).ok()) {
    if (message.goes_on()) {  // it was there when the first part began
      throw std::runtime_error("the values of " + message.Text() + " are not there any more");
    }
    run.step.Raise(Attention::kMissing);
  }
  message.SetFlag(buffer, run.step.flag());
  run.step.Begin();
  reducer_.Begin(run.process_set, 0, message.Values(buffer), number + 1 < messages_.size(), message.Text(),
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
    if (id != 0 && !state_->process_set_table.Get(id).tensor_queue.Submitted().empty()) {
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
  const auto in_flight = reducer_.InFlight();
  // A group is not complete before as many came as it lacks.
  wake_at_ = run.step.lacks() ? seen + run.step.lacking() : INT64_MAX;
  if (in_flight) {
    if (added_ < wake_at_) {
      reducer_.Progress(before + std::chrono::nanoseconds(kLook_ns));
      Receive(run);
    }
  } else {
    std::unique_lock<std::mutex> lock(mutex_);
    woken_.wait_for(lock, std::chrono::nanoseconds(kLook_ns), [&] { return added_ >= wake_at_; });
  }
  wake_at_ = INT64_MAX;
  const auto timeout_ns = followed_.timeout_ns;
  if (!in_flight) {
    run.waited_ns += std::min(Nanoseconds(Clock::now()) - Nanoseconds(before), timeout_ns / 8 + kLook_ns);
  }
  if (const auto why = why_failed_(); !why.empty()) {
    throw std::runtime_error(why);
  }
  Drain(run);
  if (state_->shut_down) {
    run.step.Raise(Attention::kShutdown);
  } else if (in_flight) {  // a thread that waits for tensors in flight submits nothing meanwhile
    return;
  } else if (run.waited_ns >= timeout_ns) {
    run.step.Raise(Attention::kMissing);
  } else if (run.waited_ns >= kOthers_ns && OthersWait(run)) {
    run.step.Raise(Attention::kOther);
  }
}

void Armed::Step(common::ProcessSet& process_set) {
  std::vector<int32_t> tensors;
  tensors.reserve(messages_.size());
  for (const auto& message : messages_) {
    tensors.push_back(message.goes_on() ? -1 : static_cast<int32_t>(message.names().size()));
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
  for (auto& request : held_) {
    Take(run, std::move(request));
  }
  held_.clear();
  try {
    for (auto next = run.step.next(); next != core::ArmedStep::Next::kEnd; next = run.step.next()) {
      if (next == core::ArmedStep::Next::kBegin) {
        Send(run);
      } else {
        Wait(run);
      }
    }
    reducer_.Finish(process_set);
  } catch (const std::exception& error) {
    reducer_.Fail(error);  // or messages in flight would touch this run's memory, and the first group's never end
    throw;
  }
  taken_up_();
  awaited_.Begin();
  Drain(run);  // what comes from here on says so
  std::deque<common::Request> back;
  for (auto n = static_cast<size_t>(run.step.done()); n < run.taken.size(); ++n) {
    back.insert(back.end(), run.taken[n].begin(), run.taken[n].end());
  }
  back.insert(back.end(), run.others.begin(), run.others.end());
  const bool left = !back.empty();
  process_set.tensor_queue.PushMessagesToQueue(back);  // empties it
  if (left || state_->shut_down || OthersWait(run)) {
    awaited_.Stop();
    NotifyWorkSubmitted();
  }
  watch_.Ended(run.step.complete());
  waited_ns_ = 0;
  looked_ns_ = Nanoseconds(Clock::now());
  if (run.step.complete()) {
    ++status_.steps;
    return;
  }
  ++status_.fallbacks;
  status_.attention = run.step.attention();
  if (watch_.state() == State::kOff && !reported_) {
    reported_ = true;
    using namespace ::horovod::common;  // the LOG macro names Horovod's classes without their namespace
    LOG(WARNING, process_set.controller->GetRank())
        << "Paceline: steps are negotiated in full again, armed steps were aborted " << core::StepWatch::kMostStrikes
        << " times; the last time " << core::Words(run.step.attention())
        << ". docs/methods/armed.md says what can be done.";
  }
}

}  // namespace horovod::paceline
