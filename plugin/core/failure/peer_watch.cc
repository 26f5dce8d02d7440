#include "core/failure/peer_watch.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/failure/watch_socket.h"

namespace paceline::core {

namespace {

// A rank greets as soon as it is connected; whoever stays silent for this long is none.
constexpr std::chrono::seconds kGreeting{5};

// Times the limit for answers: how long a call may take with the one before it, on this rank and on rank 0.
constexpr int kTimeoutFactor = 2 * (1 + LivenessCheck::kCounts);

uint32_t Number(const std::string& text) { return static_cast<uint32_t>(std::strtoul(text.c_str(), nullptr, 10)); }

// What a rank says first: the secret, its number, and who it is.
struct Hello {
  uint64_t secret;
  int32_t rank;
};

std::string Self() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return "process " + std::to_string(getpid()) + " on host " + host.data();
}

std::string Died(int32_t rank, const std::string& who) {
  return "Rank " + std::to_string(rank) + " died: " + who +
         " ended without shutting Horovod down. Its own output may say why.";
}

std::string Failed(int32_t rank, const std::string& why) {
  return "Rank " + std::to_string(rank) + " could not go on: " + why;
}

std::string DoesNotAnswer(int32_t rank, const std::string& who) {
  return "Rank " + std::to_string(rank) + " (" + who +
         ") does not answer: it has stopped, or its machine or network hangs.";
}

void Add(std::string& all, const std::string& news) { all += (all.empty() || news.empty() ? "" : " ") + news; }

}  // namespace

PeerWatch::PeerWatch(int32_t rank, int32_t size, Hear hear, std::chrono::milliseconds answers)
    : rank_(rank),
      size_(size),
      hear_(std::move(hear)),
      check_(rank == 0, answers),
      timeout_(kTimeoutFactor * answers) {}

PeerWatch::~PeerWatch() {
  if (thread_.joinable()) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    eventfd_write(wake_, 1);
    thread_.join();
  }
  for (auto& peer : peers_) {
    CloseKept(peer.fd);
  }
  CloseKept(listener_);
  CloseKept(wake_);
}

WatchAddress PeerWatch::Listen(const sockaddr_storage& interface) {
  WatchAddress address;
  address.socket = interface;
  if (interface.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address.socket)->sin6_port = 0;
  } else {
    reinterpret_cast<sockaddr_in*>(&address.socket)->sin_port = 0;
  }
  // Asked without waiting: who wanted to connect may have gone again.
  listener_ = KeptFromChildren(
      "socket", [&] { return socket(interface.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  auto* raw = reinterpret_cast<sockaddr*>(&address.socket);
  socklen_t size = AddressSize(address.socket);
  if (bind(listener_, raw, size) != 0 || listen(listener_, size_) != 0 || getsockname(listener_, raw, &size) != 0) {
    throw std::runtime_error(std::string("cannot listen for the other ranks: ") +
                             std::system_category().message(errno));
  }
  std::random_device random;
  address.secret = (static_cast<uint64_t>(random()) << 32U) | random();
  return address;
}

void PeerWatch::Begin(const WatchAddress& address, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  if (rank_ == 0) {
    Accept(address, until);
  } else {
    Join(address, until);
  }
  wake_ = KeptFromChildren("eventfd", [] { return eventfd(0, EFD_CLOEXEC); });
  thread_ = std::thread([this] { Run(); });
}

void PeerWatch::Accept(const WatchAddress& address, WatchTime until) {
  while (static_cast<int32_t>(peers_.size()) + 1 < size_) {
    if (!WaitReadable(listener_, until)) {
      throw std::runtime_error("rank 0 waited in vain for " +
                               std::to_string(size_ - 1 - static_cast<int32_t>(peers_.size())) +
                               " other ranks to connect to it");
    }
    Peer peer;
    try {
      peer.fd = KeptFromChildren("accept", [&] { return accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC); });
    } catch (const std::runtime_error&) {
      continue;  // it has gone again
    }
    SetOptions(peer.fd);
    try {
      const auto message = Expect(peer.fd, peer.input, std::min(until, std::chrono::steady_clock::now() + kGreeting));
      Hello hello{};
      if (message.word != WatchWord::kHello || message.text.size() < sizeof(hello)) {
        throw std::runtime_error("no greeting");
      }
      std::memcpy(&hello, message.text.data(), sizeof(hello));
      if (hello.secret != address.secret) {
        throw std::runtime_error("a stranger");
      }
      peer.rank = hello.rank;
      peer.who = message.text.substr(sizeof(hello));
    } catch (const std::runtime_error&) {
      CloseKept(peer.fd);  // none of ours: go on waiting for those that are
      continue;
    }
    Send(peer.fd, WatchWord::kWelcome, Self());
    peers_.push_back(std::move(peer));
  }
  CloseKept(listener_);
}

void PeerWatch::Join(const WatchAddress& address, WatchTime until) {
  Peer peer;
  peer.fd = KeptFromChildren("socket", [&] { return socket(address.socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  peers_.push_back(peer);
  auto& zero = peers_.back();
  SetOptions(zero.fd);  // its limit for sending holds for connecting, too
  int result = -1;
  do {
    result = connect(zero.fd, reinterpret_cast<const sockaddr*>(&address.socket), AddressSize(address.socket));
  } while (result != 0 && (errno == EINTR || errno == EINPROGRESS || errno == EALREADY) &&
           std::chrono::steady_clock::now() < until);
  if (result != 0 && errno != EISCONN) {
    throw std::runtime_error(std::string("cannot connect to rank 0: ") + std::system_category().message(errno));
  }
  const Hello hello{address.secret, rank_};
  Send(zero.fd, WatchWord::kHello, std::string(reinterpret_cast<const char*>(&hello), sizeof(hello)) + Self());
  try {
    zero.who = Expect(zero.fd, zero.input, until).text;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(std::string("rank 0 does not answer: ") + error.what());
  }
}

void PeerWatch::Run() {
  bool begun = false;
  while (true) {
    std::vector<pollfd> waiting{{wake_, POLLIN, 0}};
    for (const auto& peer : peers_) {
      waiting.push_back({peer.fd, POLLIN, 0});  // those that are closed (-1) are passed over
    }
    int limit_ms = begun ? -1 : 0;
    if (begun && check_.state() != LivenessCheck::State::kIdle) {
      const auto left = check_.until() - std::chrono::steady_clock::now();
      limit_ms = static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(left).count()));
    }
    if (poll(waiting.data(), waiting.size(), limit_ms) < 0) {
      continue;
    }
    std::string news;
    for (size_t n = 0; n < peers_.size(); ++n) {
      // What came together with the greeting is here already.
      if (waiting[n + 1].revents != 0 || !begun) {
        Add(news, Read(peers_[n]));
      }
    }
    begun = true;
    if (!news.empty()) {
      Spread(news);
    }
    if (rank_ != 0 && peers_[0].left) {
      std::lock_guard<std::mutex> lock(mutex_);
      alone_ = true;  // only now: who waits is to find the news that came with the goodbye
      changed_.notify_all();
    }
    if (waiting[0].revents != 0) {
      eventfd_t count = 0;
      eventfd_read(wake_, &count);
    }
    ReportFailure();
    AdvanceCheck();
    std::unique_lock<std::mutex> lock(mutex_);
    const bool ending = ending_;
    lock.unlock();
    if (ending) {
      ReportFailure();  // failures since the last report
      for (const auto& peer : peers_) {
        Send(peer.fd, WatchWord::kGoodbye, "");
      }
      return;
    }
  }
}

std::string PeerWatch::Read(Peer& peer) {
  std::string news;
  bool open = Receive(peer.fd, peer.input);
  try {
    for (WatchMessage message{}; Take(peer.input, message);) {
      if (message.word == WatchWord::kFailed) {
        Add(news, Failed(peer.rank, message.text));
      } else if (message.word == WatchWord::kNews) {
        Add(news, message.text);
      } else if (message.word == WatchWord::kCall) {
        Answer(peer, message.text);
      } else if (message.word == WatchWord::kHere) {
        check_.Here(peer.rank, Number(message.text), std::chrono::steady_clock::now());
      } else if (message.word == WatchWord::kAllHere) {
        check_.AllHere(Number(message.text));
      } else if (message.word == WatchWord::kGoodbye) {
        peer.left = true;
      }
    }
  } catch (const std::runtime_error&) {
    open = false;
  }
  if (!open || peer.left) {
    check_.Gone(peer.rank);
  }
  if (!open) {
    CloseKept(peer.fd);
    if (!peer.left) {
      Add(news, Died(peer.rank, peer.who));
    }
  }
  return news;
}

void PeerWatch::Answer(Peer& peer, const std::string& number) {
  ReportFailure();  // before the answer to a check that this failure caused
  Send(peer.fd, WatchWord::kHere, number);
  if (rank_ == 0) {
    asking_[peer.rank] = number;
  }
}

void PeerWatch::ReportFailure() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto failure = std::exchange(failure_, "");
  lock.unlock();
  if (!failure.empty() && rank_ == 0) {
    Spread(Failed(0, failure));
  } else if (!failure.empty()) {
    Send(peers_[0].fd, WatchWord::kFailed, failure);
  }
}

void PeerWatch::AdvanceCheck() {
  while (true) {
    if (check_.state() == LivenessCheck::State::kIdle) {
      BeginCheck();
    }
    const auto outcome = check_.Look(std::chrono::steady_clock::now());
    if (outcome == LivenessCheck::Outcome::kNone) {
      return;
    }
    EndCheck(outcome);
  }
}

void PeerWatch::BeginCheck() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (begun_ == wanted_ && asking_.empty()) {
      return;
    }
    begun_ = wanted_;
  }
  asked_ = std::exchange(asking_, {});
  std::set<int32_t> called;
  for (const auto& peer : peers_) {
    if (peer.fd >= 0 && !peer.left) {
      called.insert(peer.rank);
    }
  }
  const auto number = std::to_string(check_.Begin(called, std::chrono::steady_clock::now()));
  for (const auto& peer : peers_) {
    if (called.count(peer.rank) > 0) {
      Send(peer.fd, WatchWord::kCall, number);
    }
  }
}

void PeerWatch::EndCheck(LivenessCheck::Outcome outcome) {
  std::string news;
  for (const auto& peer : peers_) {
    const auto asked = asked_.find(peer.rank);
    if (outcome == LivenessCheck::Outcome::kMissing && check_.missing().count(peer.rank) > 0) {
      Add(news, DoesNotAnswer(peer.rank, peer.who));
    } else if (outcome == LivenessCheck::Outcome::kAllHere && asked != asked_.end() && peer.fd >= 0) {
      Send(peer.fd, WatchWord::kAllHere, asked->second);
    }
  }
  if (!news.empty()) {
    if (rank_ != 0) {
      Send(peers_[0].fd, WatchWord::kNews, news);  // for when it goes on
    }
    Spread(news);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  over_ = begun_;
  changed_.notify_all();
}

void PeerWatch::Spread(const std::string& news) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!news_.empty()) {
      return;
    }
    news_ = news;
    changed_.notify_all();
  }
  if (rank_ == 0) {
    for (const auto& peer : peers_) {
      if (peer.fd >= 0 && !peer.left) {
        Send(peer.fd, WatchWord::kNews, news);
      }
    }
  }
  hear_(news);
}

void PeerWatch::Fail(const std::string& why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!news_.empty()) {
      return;
    }
    failure_ = why;
  }
  eventfd_write(wake_, 1);
}

std::string PeerWatch::Await(std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return !news_.empty() || alone_; });
  return news_;
}

std::string PeerWatch::CheckLiveness() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto own = ++wanted_;
  eventfd_write(wake_, 1);
  changed_.wait_for(lock, timeout_, [&] { return !news_.empty() || alone_ || over_ >= own; });
  return news_;
}

}  // namespace paceline::core
