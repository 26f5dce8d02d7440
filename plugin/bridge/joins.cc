#include "bridge/joins.h"

#include <algorithm>
#include <iterator>

#include "bridge/reserved_names.h"

namespace horovod::paceline {

void HeldJoins::Filter(int32_t process_set_id, std::deque<common::Request>& messages,
                       const std::function<bool()>& through) {
  const auto join = std::find_if(messages.begin(), messages.end(),
                                 [](const auto& one) { return one.request_type() == common::Request::JOIN; });
  if (join != messages.end()) {
    joins_[process_set_id] = std::move(*join);
    messages.erase(join);
  }
  const auto held = joins_.find(process_set_id);
  if (held != joins_.end() && through()) {
    messages.push_back(std::move(held->second));
    joins_.erase(held);
  }
}

void Joins::Popped(common::ProcessSet& process_set, std::deque<common::Request>& messages) {
  held_.Filter(current_, messages, [&] {
    const auto submitted = process_set.tensor_queue.Submitted();
    return std::all_of(submitted.begin(), submitted.end(), [&](const std::string& name) {
      return name == JOIN_TENSOR_NAME || Begins(name, kReserved) || apart_(current_, name);
    });
  });
}

}  // namespace horovod::paceline
