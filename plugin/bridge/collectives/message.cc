#include "bridge/collectives/message.h"

#include <utility>

#include "bridge/participants.h"

namespace horovod::paceline {

Message::Message(common::HorovodGlobalState& state, common::ProcessSet& process_set,
                 std::vector<common::TensorTableEntry>& entries, common::Response response, const std::string& activity)
    : state_(state), process_set_(process_set), response_(std::move(response)), start_(Clock::now()) {
  entries_.swap(entries);
  state_.timeline.ActivityStartAll(entries_, activity);
}

void Message::Return(std::vector<common::TensorTableEntry>& entries) {
  state_.timeline.ActivityEndAll(entries_);
  entries.swap(entries_);
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
  state_.timeline.ActivityEndAll(entries_);
  TellPerformed({process_set_, response_, entries_, status, Nanoseconds(start_), Nanoseconds(Clock::now())});
  for (auto& entry : entries_) {
    state_.timeline.End(entry.tensor_name, status.ok() ? entry.output : nullptr);
    entry.FinishWithCallback(status);
  }
}

}  // namespace horovod::paceline
