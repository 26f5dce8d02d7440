// Tells every rank within milliseconds which rank died, and on request which ranks do not answer.

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

// Where rank 0 listens, and a number that keeps strangers out. Goes to the other ranks byte for byte.
struct WatchAddress {
  sockaddr_storage socket{};
  uint64_t secret = 0;
};

// Each rank keeps one connection to rank 0 that carries nothing while all is well. The kernel closes a dead process's
// connections at once, whatever the other ranks are busy with, so rank 0 learns of a death without waiting and tells
// the others; that of rank 0 is seen by all. Who leaves in order says goodbye first, who lives but cannot go on says
// why: only a connection that ends without either is a death. The first news counts, all later ones follow from it.
//
// A process that is stopped and a host that hangs keep their connections. Who waited in vain has the roll called: all
// ranks answer, whatever they are busy with; that one does not is news like a death.
//
// One thread of its own does all that; it sleeps until something happens. Processes forked from a rank (loaders of
// data, say) would keep its connections open after its death: they close their copies at the fork.
class PeerWatch {
 public:
  // Called once, by the watching thread, with the first news: a sentence for people that names the rank.
  using Hear = std::function<void(const std::string& news)>;

  // Within this a rank answers that is alive, on a machine that is busy.
  static constexpr std::chrono::milliseconds kAnswers{3000};

  PeerWatch(int32_t rank, int32_t size, Hear hear, std::chrono::milliseconds answers = kAnswers);
  // Says goodbye. Not from within `hear`.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // Rank 0, first: listen on the interface that has this address, at a free port. Throws std::runtime_error.
  WatchAddress Listen(const sockaddr_storage& interface);
  // Connect the ranks and begin to watch; rank 0 waits here for all others. Throws std::runtime_error after `limit`.
  void Begin(const WatchAddress& address, std::chrono::milliseconds limit);

  // This rank lives but cannot go on: tell the others why, unless there was news before. Returns at once.
  void Fail(const std::string& why);
  // The news, waiting for it up to `limit`; empty if there is none, at once if none can come any more.
  std::string Await(std::chrono::milliseconds limit);
  // Call the roll: the news, which may be that ranks do not answer; empty if all answer, or rank 0 has left. Returns
  // within milliseconds if all answer, and within some times `answers` in any case.
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
  // What the peer's connection has for us; the news in it, empty if there is none.
  std::string Read(Peer& peer);
  void Answer(Peer& peer, const std::string& number);
  // Tell what this rank has failed of, if it has.
  void ReportFailure();
  void Spread(const std::string& news);
  // Begin a call if somebody wants one, and end one that has come to something.
  void AdvanceCheck();
  void BeginCheck();
  void EndCheck(LivenessCheck::Outcome outcome);

  const int32_t rank_;
  const int32_t size_;
  const Hear hear_;
  int listener_ = -1;
  int wake_ = -1;
  std::vector<Peer> peers_;  // rank 0: all others; they: rank 0. Only the watching thread, once there is one
  // As peers_. Who asked rank 0, with the numbers of their calls: for the next call, and in the one that goes on.
  LivenessCheck check_;
  const std::chrono::milliseconds timeout_;  // for a call
  std::map<int32_t, std::string> asking_, asked_;
  std::thread thread_;

  std::mutex mutex_;  // protects everything below
  std::condition_variable changed_;
  std::string news_;
  std::string failure_;  // to be told to the others
  bool alone_ = false;   // no news can come any more
  // Calls that threads of this rank have wanted so far, that were theirs when the last call began, and that are over.
  uint64_t wanted_ = 0, begun_ = 0, over_ = 0;
  bool ending_ = false;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_FAILURE_PEER_WATCH_H
