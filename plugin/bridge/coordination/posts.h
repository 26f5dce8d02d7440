// Messages of the coordination of one process set, each waited for where it is needed.

#ifndef PACELINE_BRIDGE_COORDINATION_POSTS_H
#define PACELINE_BRIDGE_COORDINATION_POSTS_H

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "bridge/transport.h"

namespace horovod::paceline {

// One thread, that of the background. What fails closes connections: nothing goes on then.
class Posts {
 public:
  explicit Posts(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}

  int32_t rank() const { return transport_->rank(); }
  int32_t size() const { return transport_->size(); }
  std::chrono::milliseconds limit() const { return transport_->limit(); }

  // `under_way` is one more until the operation has completed; it stays where it is until then, as the memory does.
  void Send(int32_t peer, uint64_t tag, const void* data, size_t bytes, size_t& under_way);
  void Receive(int32_t peer, uint64_t tag, void* data, size_t bytes, size_t& under_way);

  // Takes note of what has completed.
  void Look();
  // The same, until `under_way` is none. `what` is said of the peer where that is not so within `limit`.
  void Await(const size_t& under_way, int32_t peer, std::chrono::milliseconds limit,
             const std::function<std::string()>& what);
  // What was posted is taken back: where no peer sends or receives any more.
  void Leave() { transport_->Leave(); }
  // Throws LostRank or FoundHere.
  [[noreturn]] void Fail(const std::string& why, bool found_here = false);

 private:
  struct Operation {
    size_t* under_way = nullptr;
    int32_t peer = 0;
  };

  void Began(uint64_t operation, int32_t peer, size_t& under_way);
  // False: nothing had completed by then.
  bool Take(Transport::Clock::time_point until);

  const std::unique_ptr<Transport> transport_;
  std::unordered_map<uint64_t, Operation> operations_;  // by the transport's number
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COORDINATION_POSTS_H
