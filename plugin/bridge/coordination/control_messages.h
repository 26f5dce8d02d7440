// What the first rank of a process set gathers from the others, and tells them all: texts of any length in few hops.

#ifndef PACELINE_BRIDGE_COORDINATION_CONTROL_MESSAGES_H
#define PACELINE_BRIDGE_COORDINATION_CONTROL_MESSAGES_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "bridge/coordination/posts.h"
#include "bridge/transport.h"

namespace horovod::paceline {

// A text goes as a head, which says how long it is, and where that has no room for all of it, a rest. Receives of heads
// are posted ahead, so a short text takes one hop. One thread, that of the background; all throw as Posts.
class ControlMessages {
 public:
  explicit ControlMessages(std::unique_ptr<Transport> transport);

  // To the first rank, by every other one; and what it gathers, by rank. Its own is empty.
  void Send(const std::string& text) { SendTo(0, text); }
  std::vector<std::string> Gather();
  // To every other rank, by the first one; and what they receive.
  void Broadcast(const std::string& text);
  std::string Receive() { return ReceiveFrom(0); }
  // No more of them come.
  void Leave();

 private:
  struct Head {
    static constexpr size_t kRoom = 4096;

    uint64_t bytes = 0;  // of the text
    std::array<char, kRoom> text{};
  };
  struct Inbox {
    Head head;
    std::string text;
    size_t coming = 0;
  };
  struct Outgoing {
    Head head;
    std::string rest;
    size_t under_way = 0;
  };

  void Post(int32_t peer);
  void SendTo(int32_t peer, const std::string& text);
  std::string ReceiveFrom(int32_t peer);
  void AwaitSent(Outgoing& outgoing);

  std::vector<Inbox> inboxes_;  // by rank; that of the first one alone, or all but
  std::list<Outgoing> outgoing_;
  Posts posts_;  // ends before the memory that it receives into
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COORDINATION_CONTROL_MESSAGES_H
