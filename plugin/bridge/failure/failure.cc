#include "bridge/failure/failure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "bridge/failure/forked.h"
#include "bridge/lost_rank.h"
#include "core/failure/peer_watch.h"
#include "core/text/ranks.h"
#include "gloo/allgather.h"
#include "gloo/allgatherv.h"
#include "gloo/broadcast.h"
#include "gloo/common/error.h"
#include "gloo/common/logging.h"
#include "gloo/transport/context.h"
#include "gloo/transport/device.h"
#include "gloo/transport/tcp/address.h"
#include "horovod/common/logging.h"

namespace horovod::paceline {

namespace {

using ::paceline::core::PeerWatch;
using ::paceline::core::RanksText;
using ::paceline::core::WatchAddress;

// What the background thread, the watching thread and the framework's threads know about the world.
struct World {
  std::atomic<bool> failed{false};
  std::mutex mutex;  // protects everything below
  std::string why;
  std::vector<std::weak_ptr<gloo::Context>> contexts;
  std::shared_ptr<PeerWatch> watch;
  // Held while connections are closed. Who fails next goes on when all are closed: an operation that begins on one that
  // is not closed yet would receive what was sent for the operation that failed.
  std::mutex closing;
};

World& TheWorld() {
  static auto* world = new World;  // never destroyed: threads may outlive static destructors
  return *world;
}

std::shared_ptr<PeerWatch> TheWatch() {
  std::lock_guard<std::mutex> lock(TheWorld().mutex);
  return TheWorld().watch;
}

// Remembers the first reason and closes all connections.
void End(const std::string& why) {
  auto& world = TheWorld();
  std::lock_guard<std::mutex> closing(world.closing);
  std::vector<std::weak_ptr<gloo::Context>> contexts;
  {
    std::lock_guard<std::mutex> lock(world.mutex);
    if (world.why.empty()) {
      world.why = why;
    }
    world.failed = true;
    contexts.swap(world.contexts);
  }
  for (const auto& weak : contexts) {
    if (const auto context = weak.lock()) {
      context->closeConnections();
    }
  }
}

// Errors that others see as well, for a connection has two ends.
bool OfConnection(const std::exception& error) {
  return dynamic_cast<const gloo::Exception*>(&error) != nullptr ||
         dynamic_cast<const gloo::EnforceNotMet*>(&error) != nullptr ||
         dynamic_cast<const LostRank*>(&error) != nullptr;
}

std::vector<int> FromAll(const std::shared_ptr<gloo::Context>& context, int own) {
  std::vector<int> all(static_cast<size_t>(context->size));
  gloo::AllgatherOptions options(context);
  options.setInput(&own, 1);
  options.setOutput(all.data(), all.size());
  gloo::allgather(options);
  return all;
}

std::logic_error Differing(const std::string& first, size_t rank, const std::string& here) {
  return std::logic_error("Process sets differ: rank 0 registers " + first + ", rank " + std::to_string(rank) +
                          " registers " + here + ". Register the same process sets in the same order on every rank.");
}

}  // namespace

void ForgetFailure() {
  EndWatch();
  auto& world = TheWorld();
  std::lock_guard<std::mutex> lock(world.mutex);
  world.why.clear();
  world.contexts.clear();
  world.failed = false;
}

void Connected(const std::shared_ptr<gloo::Context>& context) {
  auto& world = TheWorld();
  {
    std::lock_guard<std::mutex> lock(world.mutex);
    auto& all = world.contexts;
    all.erase(std::remove_if(all.begin(), all.end(), [](const auto& one) { return one.expired(); }), all.end());
    all.push_back(context);
  }
  ThrowIfFailed();
}

void Watch(const std::shared_ptr<gloo::Context>& context) {
  if (context->size < 2) {
    return;
  }
  auto watch = std::make_shared<PeerWatch>(context->rank, context->size, [](const std::string& news) {
    using namespace ::horovod::common;  // the LOG macro names Horovod's classes without their namespace
    LOG(ERROR) << news;
    End(news);
  });
  WatchAddress address;
  if (context->rank == 0) {
    // On the interface that Gloo uses: where a pair of its own would wait to be connected.
    const auto probe = context->getDevice()->createContext(0, 2);
    probe->setTimeout(context->getTimeout());
    const auto& own = dynamic_cast<const gloo::transport::tcp::Address&>(probe->createPair(1)->address());
    address = watch->Listen(own.getSockaddr());
  }
  gloo::BroadcastOptions options(context);
  options.setOutput(reinterpret_cast<uint8_t*>(&address), sizeof(address));
  options.setRoot(0);
  gloo::broadcast(options);
  watch->Begin(address, context->getTimeout());
  std::lock_guard<std::mutex> lock(TheWorld().mutex);
  TheWorld().watch = std::move(watch);
}

void EndWatch() {
  std::shared_ptr<PeerWatch> watch;
  std::lock_guard<std::mutex> lock(TheWorld().mutex);
  watch.swap(TheWorld().watch);
  // Its thread, which may want the lock, is waited for after it is released: `watch` is destroyed last.
}

namespace {

// A rank whose connections break may answer the call before its own thread has told what broke them.
constexpr std::chrono::seconds kGrace{1};

// News of what broke a connection; empty if there are none, or as soon as the world is `over`.
std::string NewsOf(PeerWatch& watch, const std::function<bool()>& over) {
  constexpr std::chrono::milliseconds kLook{5};
  auto news = watch.CheckLiveness();
  if (news.empty() && over == nullptr) {
    return watch.Await(kGrace);
  }
  for (const auto until = std::chrono::steady_clock::now() + kGrace;
       news.empty() && !over() && std::chrono::steady_clock::now() < until;) {
    std::this_thread::sleep_for(kLook);  // Await does not wait where rank 0 has left in order
    news = watch.Await(std::chrono::milliseconds(0));
  }
  return news;
}

// `others`: another rank may be the cause. When a connection breaks, news of who died or failed are on their way, and
// here before all have answered the call; where an operation ran out of time, who has stopped does not answer.
void FailAs(const std::string& own, bool others, const std::function<bool()>& over = nullptr) {
  if (HasFailed()) {
    End("");  // connections made since
    return;
  }
  const auto watch = TheWatch();
  std::string news;
  if (watch != nullptr && others) {
    news = NewsOf(*watch, over);
  }
  if (news.empty() && over != nullptr && over()) {
    return;
  }
  if (watch != nullptr && news.empty()) {
    watch->Fail(own);
  }
  End(news.empty() ? own : news);
}

}  // namespace

void Fail(const std::exception& error) { FailAs(error.what(), OfConnection(error)); }

void FailTogether(const std::string& why) {
  EndWatch();
  End(why);
}

bool HasFailed() { return TheWorld().failed; }

std::string WhyFailed() {
  if (auto why = WhyForked(); !why.empty()) {
    return why;  // the lock may be held by a thread that was not forked
  }
  std::lock_guard<std::mutex> lock(TheWorld().mutex);
  return TheWorld().failed ? TheWorld().why : "";
}

void ThrowIfFailed() {
  if (HasFailed()) {
    throw std::runtime_error(WhyFailed());
  }
}

bool Together(const std::function<void()>& part) {
  if (HasFailed()) {
    return false;
  }
  try {
    part();
    return true;
  } catch (const std::exception& error) {
    Fail(error);
    return false;
  }
}

std::string Explain(const std::exception& error) {
  if (!OfConnection(error)) {
    return error.what();
  }
  Fail(error);
  return WhyFailed();
}

std::string ExplainEnd(const std::exception& error, const std::function<bool()>& over) {
  FailAs(error.what(), dynamic_cast<const FoundHere*>(&error) == nullptr, over);
  return WhyFailed();
}

common::Status Ended(const common::Status& otherwise) {
  return HasFailed() ? common::Status::UnknownError(WhyFailed()) : otherwise;
}

void CheckSameNumber(const std::shared_ptr<gloo::Context>& context, int sets) {
  const auto all = FromAll(context, sets);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) {
      throw Differing(std::to_string(all[0]) + " of them", rank, std::to_string(all[rank]));
    }
  }
}

void CheckSameRanks(const std::shared_ptr<gloo::Context>& context, const std::vector<int>& ranks) {
  const auto counts = FromAll(context, static_cast<int>(ranks.size()));
  std::vector<int> all(std::accumulate(counts.begin(), counts.end(), size_t{0}));
  gloo::AllgathervOptions options(context);
  options.setInput(const_cast<int*>(ranks.data()), ranks.size());
  options.setOutput(all.data(), std::vector<size_t>(counts.begin(), counts.end()));
  gloo::allgatherv(options);
  const std::vector<int> first(all.begin(), all.begin() + counts[0]);
  auto next = all.begin();
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    const std::vector<int> here(next, next + counts[rank]);
    next += counts[rank];
    if (here != first) {
      throw Differing(RanksText(first), rank, RanksText(here));
    }
  }
}

}  // namespace horovod::paceline
