#include "bridge/transport/nccl_transport.h"

#if PACELINE_HAVE_NCCL

#include <algorithm>
#include <vector>

namespace horovod::paceline {

namespace {

constexpr uint64_t kNumberTag = NcclTransport::kMessageTags;  // of a number; what is expected has the message's own tag
// While kernels run nobody tells when one has ended.
constexpr std::chrono::microseconds kPause{20};

}  // namespace

NcclTransport::~NcclTransport() {
  if (in_flight_.empty()) {
    return;
  }
  GiveUp();
  const auto until = Clock::now() + limit();
  for (Completion completion; !in_flight_.empty() && Wait(until, completion);) {
  }
}

uint64_t NcclTransport::Send(int32_t peer, uint64_t tag, const void* data, size_t bytes) {
  return Begin(NcclLane::End::kSends, peer, tag, const_cast<void*>(data), bytes);  // only read
}

uint64_t NcclTransport::Receive(int32_t peer, uint64_t tag, void* data, size_t bytes) {
  return Begin(NcclLane::End::kReceives, peer, tag, data, bytes);
}

uint64_t NcclTransport::Begin(NcclLane::End end, int32_t peer, uint64_t tag, void* data, size_t bytes) {
  const auto number = ++made_;
  if (!lanes_.failed.empty()) {
    completed_.push_back({number, lanes_.failed, false});
    return number;
  }
  if (tag >= kMessageTags) {
    completed_.push_back({number, "its tag is beyond those of NCCL's transport", true});
    return number;
  }
  auto& operation = in_flight_[number];
  operation.end = end;
  operation.peer = peer;
  operation.tag = tag;
  operation.data = data;
  operation.bytes = bytes;
  if (end == NcclLane::End::kSends) {
    Expect(number, meeting_->Receive(peer, tag, &operation.expected, sizeof(Expected)));
  } else {
    operation.expected.bytes = bytes;
    Expect(number, meeting_->Receive(peer, kNumberTag | tag, &operation.numbered, sizeof(Numbered)));
    Expect(number, meeting_->Send(peer, tag, &operation.expected, sizeof(Expected)));
  }
  return number;
}

void NcclTransport::Expect(uint64_t number, uint64_t message) {
  messages_[message] = number;
  ++in_flight_[number].meetings;
}

void NcclTransport::Met(const Completion& message) {
  const auto found = messages_.find(message.operation);
  const auto number = found->second;
  messages_.erase(found);
  auto& operation = in_flight_[number];
  --operation.meetings;
  if (!message.error.empty()) {
    Fail(message.error);
  } else if (operation.meetings == 0 && !operation.met && !operation.travelled) {
    operation.met = true;
    if (operation.end == NcclLane::End::kSends) {
      SenderMet(number, operation);
    } else {
      ReceiverMet(operation.peer, operation.numbered.number, number);
    }
  }
  EndIfOver(number);
}

NcclLane& NcclTransport::LaneOf(const Operation& operation, const ncclUniqueId& id) {
  auto& lane = lanes_.lanes[{operation.peer, operation.end}];
  if (lane == nullptr) {
    lane = std::make_unique<NcclLane>(lanes_.device, operation.end, id);
  }
  return *lane;
}

void NcclTransport::SenderMet(uint64_t number, Operation& operation) {
  if (operation.expected.bytes != operation.bytes) {
    operation.error = "it expects " + std::to_string(operation.expected.bytes) + " bytes where " +
                      std::to_string(operation.bytes) +
                      " are sent. Are PACELINE_COLLECTIVE and PACELINE_COLLECTIVE_BLOCK_BYTES the same on all ranks?";
    operation.travelled = true;
    return;
  }
  operation.numbered.number = lanes_.sent[operation.peer]++;
  if (operation.numbered.number == 0) {
    if (const auto result = ncclGetUniqueId(&operation.numbered.id); result != ncclSuccess) {
      Fail(NcclText(result, "ncclGetUniqueId"));
      return;
    }
  }
  LaneOf(operation, operation.numbered.id).Queue(number, operation.data, operation.bytes);
  Expect(number, meeting_->Send(operation.peer, kNumberTag | operation.tag, &operation.numbered, sizeof(Numbered)));
}

void NcclTransport::ReceiverMet(int32_t peer, uint64_t turn, uint64_t number) {
  early_[{peer, turn}] = number;
  auto& turns = lanes_.received[peer];
  for (auto next = early_.find({peer, turns}); next != early_.end(); next = early_.find({peer, ++turns})) {
    const auto& its = in_flight_[next->second];
    LaneOf(its, its.numbered.id).Queue(next->second, its.data, its.bytes);
    early_.erase(next);
  }
}

void NcclTransport::Look() {
  std::deque<Completion> ended;
  for (auto& [key, lane] : lanes_.lanes) {
    lane->Progress(ended);
  }
  for (const auto& one : ended) {
    if (!one.error.empty()) {
      Fail(one.error);  // all that is under way ends with it
    } else if (const auto found = in_flight_.find(one.operation); found != in_flight_.end()) {
      found->second.travelled = true;
      EndIfOver(one.operation);
    }
  }
}

void NcclTransport::EndIfOver(uint64_t number) {
  const auto found = in_flight_.find(number);
  if (found != in_flight_.end() && found->second.travelled && found->second.meetings == 0) {
    completed_.push_back({number, std::move(found->second.error), false});
    in_flight_.erase(found);
  }
}

bool NcclTransport::Wait(Clock::time_point until, Completion& completion) {
  while (true) {
    Look();
    if (!completed_.empty()) {
      completion = std::move(completed_.front());
      completed_.pop_front();
      return true;
    }
    const auto now = Clock::now();
    if (now >= until) {
      return false;
    }
    const auto idle =
        std::all_of(lanes_.lanes.begin(), lanes_.lanes.end(), [](const auto& one) { return one.second->idle(); });
    Completion message;
    if (meeting_->Wait(idle ? until : std::min<Clock::time_point>(until, now + kPause), message)) {
      Met(message);
    }
  }
}

void NcclTransport::Fail(const std::string& why) {
  if (!lanes_.failed.empty()) {
    return;
  }
  lanes_.failed = why;
  for (auto& [key, lane] : lanes_.lanes) {
    lane->Abort(why);
  }
  meeting_->GiveUp();  // peers hear of it, and messages of meetings end
  early_.clear();
  std::vector<uint64_t> numbers;
  for (auto& [number, operation] : in_flight_) {
    operation.travelled = true;  // no kernel touches its memory any more
    if (operation.error.empty()) {
      operation.error = why;
    }
    numbers.push_back(number);
  }
  for (const auto number : numbers) {
    EndIfOver(number);
  }
}

void NcclTransport::GiveUp() { Fail("this rank gave up"); }

}  // namespace horovod::paceline

#endif  // PACELINE_HAVE_NCCL
