#include "bridge/coordination/posts.h"

#include "bridge/lost_rank.h"

namespace horovod::paceline {

void Posts::Began(uint64_t operation, int32_t peer, size_t& under_way) {
  ++under_way;
  operations_[operation] = {&under_way, peer};
}

void Posts::Send(int32_t peer, uint64_t tag, const void* data, size_t bytes, size_t& under_way) {
  Began(transport_->Send(peer, tag, data, bytes), peer, under_way);
}

void Posts::Receive(int32_t peer, uint64_t tag, void* data, size_t bytes, size_t& under_way) {
  Began(transport_->Receive(peer, tag, data, bytes), peer, under_way);
}

bool Posts::Take(Transport::Clock::time_point until) {
  Completion completion;
  if (!transport_->Wait(until, completion)) {
    return false;
  }
  const auto found = operations_.find(completion.operation);
  if (found == operations_.end()) {
    Fail("its transport reports an operation that it did not begin");
  }
  const auto operation = found->second;
  operations_.erase(found);
  if (!completion.error.empty()) {
    Fail("coordinating with rank " + std::to_string(operation.peer) + " failed: " + completion.error,
         completion.of_here);
  }
  --*operation.under_way;
  return true;
}

void Posts::Look() {
  while (Take({})) {
  }
}

void Posts::Await(const size_t& under_way, int32_t peer, std::chrono::milliseconds limit,
                  const std::function<std::string()>& what) {
  const auto until = Transport::Clock::now() + limit;
  while (under_way > 0) {
    if (!Take(until)) {
      Fail("rank " + std::to_string(peer) + " " + what() + " for " + std::to_string(limit.count()) +
           " ms. Is it alive, its network up, and PACELINE_FUSION the same on all ranks?");
    }
  }
}

void Posts::Fail(const std::string& why, bool found_here) {
  transport_->Abort();
  const auto text = "Rank " + std::to_string(rank()) + " of " + std::to_string(size()) + ": " + why;
  if (found_here) {
    throw FoundHere(text);
  }
  throw LostRank(text);
}

}  // namespace horovod::paceline
