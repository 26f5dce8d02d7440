#include "bridge/collectives/message.h"

#include <atomic>
#include <utility>

#include "bridge/participants.h"

namespace horovod::paceline {

namespace {

std::atomic<int64_t> unanswered{0};

}  // namespace

int64_t Message::Unanswered() { return unanswered; }

Message::Message(common::HorovodGlobalState& state, common::ProcessSet& process_set,
                 std::vector<common::TensorTableEntry>& entries, common::Response response, const std::string& activity)
    : state_(state), process_set_(process_set), response_(std::move(response)), start_(Clock::now()) {
  entries_.swap(entries);
  ++unanswered;
  state_.timeline.ActivityStartAll(entries_, activity);
}

// Horovod's objects may have ended before: it tells nobody but those who wait.
Message::~Message() {
  if (!ended_) {
    --unanswered;
    const auto status = common::Status::Aborted("The world ended while this operation was in flight.");
    for (auto& entry : entries_) {
      entry.FinishWithCallback(status);
    }
  }
}

void Message::PartEnded() {
  if (--parts_ == 0) {
    End(common::Status::OK());
  }
}

void Message::Fail(const common::Status& status) {
  if (!ended_) {
    End(status);
  }
}

void Message::End(const common::Status& status) {
  ended_ = true;
  --unanswered;
  state_.timeline.ActivityEndAll(entries_);
  NotifyPerformed({process_set_, response_, entries_, status, Nanoseconds(start_), Nanoseconds(Clock::now())});
  for (auto& entry : entries_) {
    state_.timeline.End(entry.tensor_name, status.ok() ? entry.output : nullptr);
    entry.FinishWithCallback(status);
  }
  room_.reset();
}

}  // namespace horovod::paceline
