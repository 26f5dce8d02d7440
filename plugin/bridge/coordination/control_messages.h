// Control messages: texts of any length that rank 0 of a process set gathers and broadcasts, in few hops.

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

// A text is sent as a head, which contains its length, and a rest if the head has no room for the whole text. Receives
// of heads are posted ahead, so a short text takes one hop. Background thread only. All functions throw as Posts.
class ControlMessages {
 public:
  explicit ControlMessages(std::unique_ptr<Transport> transport);

  // Send: every other rank sends a text to rank 0. Gather: rank 0 returns the texts by rank; its own text is empty.
  void Send(const std::string& text) { SendTo(0, text); }
  std::vector<std::string> Gather();
  // Broadcast: rank 0 sends a text to all other ranks. Receive: every other rank returns it.
  void Broadcast(const std::string& text);
  std::string Receive() { return ReceiveFrom(0); }
  // Leaves: no text follows.
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

  std::vector<Inbox> inboxes_;  // by rank: on rank 0 of all other ranks, on another rank of rank 0 alone
  std::list<Outgoing> outgoing_;
  Posts posts_;  // ends before the memory that it receives into
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COORDINATION_CONTROL_MESSAGES_H
