// Notifies all ranks of a rank's death within milliseconds, and on request of ranks that do not answer.

#ifndef PACELINE_CORE_FAILURE_PEER_WATCH_H
#define PACELINE_CORE_FAILURE_PEER_WATCH_H

#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/failure/liveness_check.h"

namespace paceline::core {

// Address where rank 0 listens, and a secret that rejects strangers. Sent to the other ranks byte for byte.
struct WatchAddress {
  sockaddr_storage socket{};
  uint64_t secret = 0;
};

// Each rank keeps one connection to rank 0, idle as long as no rank fails. The kernel closes the connections of a dead
// process at once, whatever the other ranks do. So rank 0 detects a death without a timeout and notifies the other
// ranks; all ranks detect the death of rank 0. A rank that leaves in order sends a goodbye first, and a rank that fails
// sends the reason: only a connection that ends without either is a death. The first failure notice counts, because
// later ones follow from it.
//
// A stopped process or a hanging host keeps its connections. A rank starts a liveness check after a timeout: all ranks
// answer, whatever they do, and a rank without an answer is reported like a dead rank.
//
// A separate thread does all that; it sleeps until an event. Processes forked from a rank (data loaders, for example)
// would keep its connections open after its death, so they close their copies at the fork.
class PeerWatch {
 public:
  // Called once, by the watching thread, with the first failure notice: a sentence for users that names the rank.
  using Hear = std::function<void(const std::string& news)>;

  // Time within which a live rank answers, on a busy machine.
  static constexpr std::chrono::milliseconds kAnswers{3000};

  PeerWatch(int32_t rank, int32_t size, Hear hear, std::chrono::milliseconds answers = kAnswers);
  // Sends a goodbye. Not from within `hear`.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // Rank 0, first: listens on the interface with this address, at a free port. Throws std::runtime_error.
  WatchAddress Listen(const sockaddr_storage& interface);
  // Connects the ranks and begins to watch; rank 0 waits here for all others. Throws std::runtime_error after `limit`.
  void Begin(const WatchAddress& address, std::chrono::milliseconds limit);

  // Sends a failure notice of this rank with the reason, unless there was one before. Returns at once.
  void Fail(const std::string& why);
  // Waits up to `limit` for a failure notice, and returns it; empty without one, at once if none can come any more.
  std::string Await(std::chrono::milliseconds limit);
  // Liveness check of all ranks. Returns the failure notice, for example ranks that do not answer; empty if all answer
  // or rank 0 has left. Returns within milliseconds if all answer, else within a few times `answers`.
  std::string CheckLiveness();

 private:
  struct Peer {
    int32_t rank = 0;
    int fd = -1;
    bool left = false;
    std::string who;    // "process 4711 on host a"
    std::string input;  // received, but not a whole message yet
  };

  void Accept(const WatchAddress& address, std::chrono::steady_clock::time_point until);
  void Join(const WatchAddress& address, std::chrono::steady_clock::time_point until);
  void Run();
  // Reads the peer's connection. Returns a received failure notice, or an empty text.
  std::string Read(Peer& peer);
  void Answer(Peer& peer, const std::string& number);
  // Sends the failure of this rank, if there is one.
  void ReportFailure();
  void Spread(const std::string& news);
  // Begins a requested check, and ends a check with an outcome.
  void AdvanceCheck();
  void BeginCheck();
  void EndCheck(LivenessCheck::Outcome outcome);

  const int32_t rank_;
  const int32_t size_;
  const Hear hear_;
  int listener_ = -1;
  int wake_ = -1;
  std::vector<Peer> peers_;  // rank 0: all others; they: rank 0. Only the watching thread, once there is one
  // Only the watching thread. asking_, asked_: ranks that called rank 0, with the numbers of their calls: for the next
  // check, and for the current check.
  LivenessCheck check_;
  const std::chrono::milliseconds timeout_;  // of a check
  std::map<int32_t, std::string> asking_, asked_;
  std::thread thread_;

  std::mutex mutex_;  // protects everything below
  std::condition_variable changed_;
  std::string news_;
  std::string failure_;  // not sent to the other ranks yet
  bool alone_ = false;   // no failure notice can come any more
  // Number of checks that threads of this rank have requested so far, had requested when the last check began, and that
  // have ended.
  uint64_t wanted_ = 0, begun_ = 0, over_ = 0;
  bool ending_ = false;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_FAILURE_PEER_WATCH_H
