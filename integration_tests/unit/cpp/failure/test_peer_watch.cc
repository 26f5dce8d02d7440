// The watch of peers in one process and with a rank 2 that dies or stops. Those of rank 0 are in
// integration_tests/faults: test_dead_ranks.py and test_communicator.py.

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/failure/peer_watch.h"
#include "core/failure/watch_socket.h"

namespace {

using namespace paceline::core;

constexpr std::chrono::seconds kLimit{20};

sockaddr_storage Loopback() {
  sockaddr_storage address{};
  auto* inet = reinterpret_cast<sockaddr_in*>(&address);
  inet->sin_family = AF_INET;
  inet->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

struct Rank {
  std::string heard;
  int times = 0;
  std::mutex mutex;
  std::unique_ptr<PeerWatch> watch;

  Rank(int32_t rank, int32_t size, std::chrono::milliseconds answers = PeerWatch::kAnswers)
      : watch(std::make_unique<PeerWatch>(
            rank, size,
            [this](const std::string& news) {
              std::lock_guard<std::mutex> lock(mutex);
              heard = news;
              ++times;
            },
            answers)) {}
};

// Ranks in threads of this process, all connected. Ranks from `here` on are somewhere else.
std::vector<std::unique_ptr<Rank>> Connect(int32_t size, int32_t here, int address_to = -1,
                                           std::chrono::milliseconds answers = PeerWatch::kAnswers) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int32_t rank = 0; rank < here; ++rank) {
    ranks.push_back(std::make_unique<Rank>(rank, size, answers));
  }
  const auto address = ranks[0]->watch->Listen(Loopback());
  if (address_to >= 0) {
    REQUIRE(write(address_to, &address, sizeof(address)) == sizeof(address));
  }
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([&rank, &address] { rank->watch->Begin(address, kLimit); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  return ranks;
}

struct Pipe {
  Pipe() { REQUIRE(pipe(ends) == 0); }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  int from() const { return ends[0]; }
  int to() const { return ends[1]; }
  int ends[2];
};

// A process that is rank 2 of 3 until it is killed. It reads where rank 0 listens.
pid_t ForkTwo(const Pipe& address_of_zero, bool forks_again = false) {
  const auto child = fork();
  if (child != 0) {
    return child;
  }
  setpgid(0, 0);
  WatchAddress address;
  PeerWatch watch(2, 3, [](const std::string&) {});
  if (read(address_of_zero.from(), &address, sizeof(address)) == sizeof(address)) {
    watch.Begin(address, kLimit);
  }
  if (forks_again) {
    fork();
  }
  alarm(3 * kLimit.count());  // should the test not live to end it
  while (true) {
    pause();
  }
}

void Kill(pid_t child) {
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

void Stop(pid_t child) {
  int status = 0;
  kill(child, SIGSTOP);
  REQUIRE(waitpid(child, &status, WUNTRACED) == child);
}

TEST_CASE("every rank hears of a death, once, and who it was; a dead process's children do not keep it alive") {
  for (const bool forks_again : {false, true}) {
    const Pipe channel;
    const auto child = ForkTwo(channel, forks_again);
    auto ranks = Connect(3, 2, channel.to());
    if (forks_again) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    Kill(child);
    const std::string expected = "Rank 2 died: process " + std::to_string(child) + " on host ";
    for (auto& rank : ranks) {
      CHECK(rank->watch->Await(kLimit).find(expected) == 0);
      rank->watch.reset();
      CHECK(rank->times == 1);
    }
    kill(-child, SIGKILL);
  }
}

TEST_CASE("a rank that fails says why, and the first reason counts") {
  for (const int32_t failing : {0, 1, 2}) {
    auto ranks = Connect(3, 3);
    ranks[failing]->watch->Fail("no more room");
    const std::string expected = "Rank " + std::to_string(failing) + " could not go on: no more room";
    for (int32_t rank = 0; rank < 3; ++rank) {
      if (rank != failing) {
        CHECK(ranks[rank]->watch->Await(kLimit) == expected);
        ranks[rank]->watch->Fail("something that follows from it");
      }
    }
    ranks[failing]->watch.reset();
    CHECK(ranks[(failing + 1) % 3]->watch->Await(kLimit) == expected);
  }
}

TEST_CASE("news of a rank that leaves right behind it are not missed") {
  for (int turn = 0; turn < 300; ++turn) {
    auto ranks = Connect(2, 2);
    std::string heard;
    std::thread waiting([&] { heard = ranks[1]->watch->Await(kLimit); });
    ranks[0]->watch->Fail("no more room");
    ranks[0]->watch.reset();
    waiting.join();
    REQUIRE(heard == "Rank 0 could not go on: no more room");
  }
}

TEST_CASE("who says goodbye has not died") {
  for (const int32_t first : {0, 2}) {
    auto ranks = Connect(3, 3);
    ranks[first]->watch.reset();
    if (first == 0) {
      CHECK(ranks[1]->watch->Await(kLimit).empty());  // at once: none can come any more
    }
    for (auto& rank : ranks) {
      rank->watch.reset();
    }
    for (auto& rank : ranks) {
      CHECK(rank->times == 0);
    }
  }
}

TEST_CASE("news that do not come are not waited for longer than asked") {
  auto ranks = Connect(2, 2);
  CHECK(ranks[0]->watch->Await(std::chrono::milliseconds(20)).empty());
  CHECK(ranks[1]->watch->Await(std::chrono::milliseconds(20)).empty());
}

TEST_CASE("strangers are turned away, and missed ranks are an error") {
  Rank zero(0, 2), stranger(1, 2);
  const auto address = zero.watch->Listen(Loopback());
  auto wrong = address;
  ++wrong.secret;
  std::thread knocking([&] { CHECK_THROWS_AS(stranger.watch->Begin(wrong, kLimit), std::runtime_error); });
  CHECK_THROWS_AS(zero.watch->Begin(address, std::chrono::milliseconds(500)), std::runtime_error);
  knocking.join();
  PeerWatch nobody_listens(1, 2, [](const std::string&) {});
  CHECK_THROWS_AS(nobody_listens.Begin(address, std::chrono::milliseconds(100)), std::runtime_error);
}

TEST_CASE("a call that comes together with the greeting is answered") {
  WatchAddress address;
  address.socket = Loopback();
  auto* raw = reinterpret_cast<sockaddr*>(&address.socket);
  socklen_t size = sizeof(sockaddr_in);
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  REQUIRE((bind(listener, raw, size) == 0 && listen(listener, 1) == 0 && getsockname(listener, raw, &size) == 0));
  Rank one(1, 2);
  std::thread joining([&] { one.watch->Begin(address, kLimit); });
  int zero = accept(listener, nullptr, nullptr);
  // Held back until it is whole: both messages are one packet.
  int held = 1;
  REQUIRE(setsockopt(zero, IPPROTO_TCP, TCP_CORK, &held, sizeof(held)) == 0);
  Send(zero, WatchWord::kWelcome, "rank 0");
  Send(zero, WatchWord::kCall, "7");
  held = 0;
  REQUIRE(setsockopt(zero, IPPROTO_TCP, TCP_CORK, &held, sizeof(held)) == 0);
  joining.join();
  std::string input;
  const auto until = std::chrono::steady_clock::now() + kLimit;
  CHECK(Expect(zero, input, until).word == WatchWord::kHello);
  const auto answer = Expect(zero, input, until);
  CHECK((answer.word == WatchWord::kHere && answer.text == "7"));
  one.watch.reset();
  close(zero);
  close(listener);
}

std::vector<std::string> AllCall(const std::vector<PeerWatch*>& watches) {
  std::vector<std::string> found(watches.size());
  std::vector<std::thread> threads;
  for (size_t n = 0; n < watches.size(); ++n) {
    threads.emplace_back([&, n] { found[n] = watches[n]->CheckLiveness(); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  return found;
}

TEST_CASE("all answer the roll, whoever asks, as often as they like and at once") {
  auto ranks = Connect(4, 4);
  for (auto& rank : ranks) {
    CHECK(rank->watch->CheckLiveness().empty());
  }
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<PeerWatch*> all;
    for (auto& rank : ranks) {
      all.insert(all.end(), 3, rank->watch.get());
    }
    for (const auto& news : AllCall(all)) {
      CHECK(news.empty());
    }
  }
}

TEST_CASE("a rank that has stopped does not answer, and hears so when it goes on") {
  const Pipe channel;
  const auto child = ForkTwo(channel);
  auto ranks = Connect(3, 2, channel.to(), std::chrono::seconds(2));
  Stop(child);
  SUBCASE("rank 0 asks") { ranks[0]->watch->CheckLiveness(); }
  SUBCASE("another rank asks") { ranks[1]->watch->CheckLiveness(); }
  SUBCASE("both ask") { AllCall({ranks[0]->watch.get(), ranks[1]->watch.get()}); }
  SUBCASE("it goes on before the limit") {
    std::string found = "not called";
    std::thread calling([&] { found = ranks[1]->watch->CheckLiveness(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    kill(child, SIGCONT);
    calling.join();
    CHECK(found.empty());
    Stop(child);
    ranks[1]->watch->CheckLiveness();
  }
  const std::string expected = "Rank 2 (process " + std::to_string(child) + " on host ";
  for (auto& rank : ranks) {
    const auto news = rank->watch->Await(kLimit);
    CHECK(news.find(expected) == 0);
    CHECK(news.find(") does not answer: it has stopped, or its machine or network hangs.") != std::string::npos);
    rank->watch.reset();
    CHECK(rank->times == 1);
  }
  Kill(child);
}

TEST_CASE("what a rank has failed of is heard before its answer to the roll") {
  for (int turn = 0; turn < 300; ++turn) {
    auto ranks = Connect(3, 3);
    const int32_t failing = turn % 3;
    std::thread before([&] { ranks[(failing + 1) % 3]->watch->CheckLiveness(); });  // a call that goes on meanwhile
    ranks[failing]->watch->Fail("no more room");
    const auto news = ranks[(failing + 2) % 3]->watch->CheckLiveness();
    before.join();
    REQUIRE(news == "Rank " + std::to_string(failing) + " could not go on: no more room");
  }
}

TEST_CASE("who has left is not called, and without rank 0 nobody can be") {
  auto ranks = Connect(3, 3);
  ranks[1]->watch.reset();
  CHECK(ranks[2]->watch->CheckLiveness().empty());
  CHECK(ranks[0]->watch->CheckLiveness().empty());
  ranks[0]->watch.reset();
  CHECK(ranks[2]->watch->CheckLiveness().empty());
  CHECK(ranks[2]->times == 0);
}

}  // namespace
