// The sockets of PeerWatch (peer_watch.h): messages of a kind and a text, and descriptors that children do not inherit.

#ifndef PACELINE_CORE_FAILURE_WATCH_SOCKET_H
#define PACELINE_CORE_FAILURE_WATCH_SOCKET_H

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace paceline::core {

using WatchTime = std::chrono::steady_clock::time_point;

// kCall, kHere and kAllHere have the number of a call as text (liveness_check.h).
enum class WatchWord : uint32_t { kNone, kHello, kWelcome, kGoodbye, kFailed, kNews, kCall, kHere, kAllHere };

struct WatchMessage {
  WatchWord word = WatchWord::kNone;  // never sent
  std::string text;
};

// The descriptor that `make` returns, which it makes close-on-exec: programs that another thread starts do not inherit
// it, and processes that it forks meanwhile close their copies. Throws std::runtime_error for a negative one.
int KeptFromChildren(const std::string& what, const std::function<int()>& make);
// Close and forget; the descriptor becomes -1.
void CloseKept(int& fd);

// The length of the address that is in the storage.
socklen_t AddressSize(const sockaddr_storage& address);

// What every connection wants: small messages at once, an end to waiting for room, and a sign of life now and then, so
// that what stands between the hosts does not forget an idle connection and vanished hosts are found.
void SetOptions(int fd);

// Returns true if the kernel took the whole message. An ended connection is not an error here: reading detects it.
bool Send(int fd, WatchWord word, const std::string& text);

// Take the first whole message out of what was received. False: there is none. A message of nonsense throws
// std::runtime_error.
bool Take(std::string& input, WatchMessage& message);

// Add what has arrived to `input`, without waiting. False: the connection has ended.
bool Receive(int fd, std::string& input);

// Wait until the descriptor has something to read. False: it had not.
bool WaitReadable(int fd, WatchTime until);

// The next message, waiting for it. Throws std::runtime_error if none comes in time.
WatchMessage Expect(int fd, std::string& input, WatchTime until);

}  // namespace paceline::core

#endif  // PACELINE_CORE_FAILURE_WATCH_SOCKET_H
