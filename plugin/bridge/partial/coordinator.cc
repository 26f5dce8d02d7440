#include "bridge/partial/coordinator.h"

namespace horovod::paceline {

void PartialCoordinator::Take(const std::string& name, const common::Request& request, int64_t round) {
  const int32_t rank = request.request_rank();
  switch (NewsOf(request)) {
    case PartialNews::kVote:
      rounds_.Vote(name, rank);
      break;
    case PartialNews::kFlush:
      rounds_.Flush(name, rank);
      break;
    case PartialNews::kArrived:
      rounds_.Arrived(name, rank, round);
      break;
    case PartialNews::kMisfit:
      misfits_.try_emplace(name, request);
      rounds_.Misfit(name);
      break;
    default:  // about no name
      break;
  }
}

bool PartialCoordinator::Counts(const common::Request& request) {
  if (request.request_type() != common::Request::ALLREDUCE || request.root_rank() == 0) {
    return false;
  }
  const auto& name = request.tensor_name();
  if (!rounds_.Knows(name)) {
    const auto channel = find_(name);
    if (channel == nullptr) {
      // Other ranks may come before this one, whose first call says by which rule. Round 0 waits for it anyway.
      early_[name].push_back(request);
      return true;
    }
    rounds_.Begin(name, channel->rule());
    for (const auto& before : early_[name]) {
      Take(name, before, 0);
    }
    early_.erase(name);
  }
  Take(name, request, 0);
  return true;
}

void PartialCoordinator::TakeNote(const common::Request& note) {
  const auto news = NewsOf(note);
  if (news == PartialNews::kAbsent || news == PartialNews::kPresent) {
    rounds_.SetAbsent(note.request_rank(), news == PartialNews::kAbsent);
    return;
  }
  // Without a vote so far there is nobody to wait for this rank.
  const auto name = NotedName(note.tensor_name());
  if (rounds_.Knows(name)) {
    Take(name, note, note.tensor_shape()[0]);
  }
}

void PartialCoordinator::Sent(const common::Response& response, const std::string& name) {
  if (response.response_type() == common::Response::ERROR) {
    rounds_.Failed(name);
    misfits_.erase(name);
  } else {
    rounds_.Sent(name);
  }
}

std::string PartialCoordinator::Error(const std::string& name) const {
  const auto misfit = misfits_.find(name);
  const auto channel = find_(name);
  if (misfit == misfits_.end() || channel == nullptr) {
    return {};
  }
  const auto& found = misfit->second;
  return channel->Misfit(found.tensor_type(), FoundShape(found), " on rank " + std::to_string(found.request_rank()));
}

}  // namespace horovod::paceline
