#include "core/failure/watch_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <system_error>

namespace paceline::core {

namespace {

constexpr uint32_t kLongest = 65536;  // bytes of a message's text

struct Header {
  WatchWord word = WatchWord::kNone;
  uint32_t length = 0;
};

// Never destroyed: processes fork at any time.
std::mutex& KeptMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::set<int>& Kept() {
  static auto* kept = new std::set<int>;
  return *kept;
}

// The lock is held across the fork, or the child might find the list half changed.
void CloseInChildren() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork([] { KeptMutex().lock(); }, [] { KeptMutex().unlock(); },
                   [] {
                     for (const int fd : Kept()) {
                       close(fd);
                     }
                     Kept().clear();
                     KeptMutex().unlock();
                   });
  });
}

void Set(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); }

}  // namespace

int KeptFromChildren(const std::string& what, const std::function<int()>& make) {
  CloseInChildren();
  std::lock_guard<std::mutex> lock(KeptMutex());  // a fork waits
  const int fd = make();
  if (fd < 0) {
    throw std::runtime_error(what + ": " + std::system_category().message(errno));
  }
  Kept().insert(fd);
  return fd;
}

void CloseKept(int& fd) {
  if (fd < 0) {
    return;
  }
  std::lock_guard<std::mutex> lock(KeptMutex());
  Kept().erase(fd);
  close(fd);
  fd = -1;
}

socklen_t AddressSize(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

void SetOptions(int fd) {
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, 6);
  timeval limit{};
  limit.tv_sec = 1;
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

bool Send(int fd, WatchWord word, const std::string& text) {
  const Header header{word, static_cast<uint32_t>(std::min<size_t>(text.size(), kLongest))};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(text, 0, header.length);
  for (size_t sent = 0; sent < bytes.size();) {
    const auto now = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno != EINTR) {
      return false;
    }
    sent += now > 0 ? static_cast<size_t>(now) : 0;
  }
  return true;
}

bool Take(std::string& input, WatchMessage& message) {
  Header header{};
  if (input.size() < sizeof(header)) {
    return false;
  }
  std::memcpy(&header, input.data(), sizeof(header));
  if (header.length > kLongest || header.word < WatchWord::kHello || header.word > WatchWord::kAllHere) {
    throw std::runtime_error("a message that is none of ours");
  }
  if (input.size() < sizeof(header) + header.length) {
    return false;
  }
  message = {header.word, input.substr(sizeof(header), header.length)};
  input.erase(0, sizeof(header) + header.length);
  return true;
}

bool Receive(int fd, std::string& input) {
  std::array<char, 4096> some{};
  while (true) {
    const auto now = recv(fd, some.data(), some.size(), MSG_DONTWAIT);
    if (now > 0) {
      input.append(some.data(), static_cast<size_t>(now));
    } else if (now == 0 || (errno != EAGAIN && errno != EINTR)) {
      return false;
    } else if (errno == EAGAIN) {
      return true;
    }
  }
}

bool WaitReadable(int fd, WatchTime until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd one{fd, POLLIN, 0};
    const int ready = poll(&one, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000)));
    if (ready > 0) {
      return true;
    }
    if (left <= 0) {
      return false;
    }
  }
}

WatchMessage Expect(int fd, std::string& input, WatchTime until) {
  WatchMessage message{};
  bool open = true;
  while (!Take(input, message)) {
    if (!open) {
      throw std::runtime_error("the connection has ended");
    }
    if (!WaitReadable(fd, until)) {
      throw std::runtime_error("no answer in time");
    }
    open = Receive(fd, input);
  }
  return message;
}

}  // namespace paceline::core
