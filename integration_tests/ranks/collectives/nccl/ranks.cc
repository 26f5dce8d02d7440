// Ranks that are threads of one process, each with a transport over NCCL's stand-in: `ranks CASE P`. No Horovod, no
// GPU.

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "bridge/transport/nccl_transport.h"
#include "transport_checks.h"

using namespace transport_checks;
using horovod::paceline::NcclLanes;
using horovod::paceline::NcclTransport;

namespace {

// Messages between threads.
struct Post {
  std::mutex mutex;  // protects what follows
  std::condition_variable changed;
  std::map<std::tuple<int32_t, int32_t, uint64_t>, std::vector<uint8_t>> sent;  // by sender, receiver and tag
  bool closed = false;
};

class Threads : public Transport {
 public:
  Threads(Post& post, int32_t rank, int32_t size, milliseconds limit)
      : post_(post), rank_(rank), size_(size), limit_(limit) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }
  milliseconds limit() const override { return limit_; }

  uint64_t Send(int32_t peer, uint64_t tag, const void* data, size_t bytes) override {
    const std::lock_guard<std::mutex> lock(post_.mutex);
    const auto* first = static_cast<const uint8_t*>(data);
    Check(post_.sent.emplace(std::make_tuple(rank_, peer, tag), std::vector<uint8_t>(first, first + bytes)).second,
          "a tag was used twice");
    post_.changed.notify_all();
    told_.push_back(++made_);
    return made_;
  }
  uint64_t Receive(int32_t peer, uint64_t tag, void* data, size_t bytes) override {
    posted_[++made_] = {peer, tag, static_cast<uint8_t*>(data), bytes};
    return made_;
  }
  bool Wait(Clock::time_point until, Completion& completion) override {
    std::unique_lock<std::mutex> lock(post_.mutex);
    return post_.changed.wait_until(lock, until, [&] { return Ended(completion); });
  }
  void GiveUp() override {
    const std::lock_guard<std::mutex> lock(post_.mutex);
    post_.closed = true;
    post_.changed.notify_all();
  }

 private:
  struct Posted {
    int32_t peer;
    uint64_t tag;
    uint8_t* data;
    size_t bytes;
  };

  bool Ended(Completion& completion) {
    if (!told_.empty()) {
      completion = {told_.back(), "", false};
      told_.pop_back();
      return true;
    }
    for (auto at = posted_.begin(); at != posted_.end(); ++at) {
      const auto& [peer, tag, data, bytes] = at->second;
      const auto found = post_.sent.find({peer, rank_, tag});
      if (found != post_.sent.end() || post_.closed) {
        completion = {at->first, found == post_.sent.end() ? "connection closed" : "", false};
        if (found != post_.sent.end()) {
          Check(found->second.size() == bytes, "a message of another length");
          std::copy(found->second.begin(), found->second.end(), data);
          post_.sent.erase(found);
        }
        posted_.erase(at);
        return true;
      }
    }
    return false;
  }

  Post& post_;
  const int32_t rank_, size_;
  const milliseconds limit_;
  uint64_t made_ = 0;
  std::vector<uint64_t> told_;
  std::map<uint64_t, Posted> posted_;
};

struct Place {
  Post& post;
  int32_t rank, size;
  NcclLanes& lanes;

  std::unique_ptr<NcclTransport> Make(milliseconds limit = kLong) const {
    return std::make_unique<NcclTransport>(lanes, std::make_unique<Threads>(post, rank, size, limit));
  }
};

// All algorithms, with many messages under way, and a new transport over the same lanes for each.
void AllValues(const Place& place) {
  Values([&] { return place.Make(); });
}

// Messages find the receives with their tags though both ends post them in opposite orders, both ways at once.
void Orders(const Place& place) {
  constexpr uint64_t kCount = 50;
  const auto peer = 1 - place.rank;
  for (int round = 0; round < 20; ++round) {
    const auto transport = place.Make();
    std::vector<std::vector<float>> out, in;
    for (uint64_t number = 0; number < kCount; ++number) {
      out.push_back(Brings(place.rank, static_cast<int64_t>(number), static_cast<int32_t>(number)));
      in.emplace_back(number);
    }
    for (uint64_t number = 0; number < kCount; ++number) {
      const auto last = kCount - 1 - number;
      transport->Send(peer, number, out[number].data(), 4 * out[number].size());
      transport->Receive(peer, last, in[last].data(), 4 * in[last].size());
    }
    for (const auto& [operation, error] : Ended(*transport, 2 * kCount)) {
      Check(error.empty(), error);
    }
    for (uint64_t number = 0; number < kCount; ++number) {
      Check(in[number] == Brings(peer, static_cast<int64_t>(number), static_cast<int32_t>(number)), "wrong values");
    }
  }
}

void Lengths(const Place& place) {
  float value[4] = {};
  const auto transport = place.Make(kShort);
  if (place.rank == 0) {
    const auto sent = transport->Send(1, 1, value, 12);
    const auto error = Ended(*transport, 1).at(sent);
    Check(error.rfind("it expects 16 bytes where 12 are sent. Are PACELINE_COLLECTIVE", 0) == 0, error);
    transport->GiveUp();
  } else {
    const auto received = transport->Receive(0, 1, value, 16);
    Check(Ended(*transport, 1).at(received) == "connection closed", "the receiver's end");
  }
}

// Rank 1 never receives: rank 0 waits for its limit, gives up, and nothing can be begun after it.
void Silent(const Place& place) {
  if (place.rank == 1) {
    return;
  }
  float value[4] = {};
  const auto transport = place.Make(kShort);
  const auto sent = transport->Send(1, 1, value, 16);
  Completion completion;
  Check(!transport->Wait(Transport::Clock::now() + kShort / 10, completion), "it ended");
  transport->GiveUp();
  Check(Ended(*transport, 1).at(sent) == "this rank gave up", "why it ended");
  const auto later = place.Make();
  const auto receive = later->Receive(1, 2, value, 16);
  Check(Ended(*later, 1).at(receive) == "this rank gave up", "what is begun after it");
}

// Rank 1 stops when both have agreed: the kernel of rank 0 would wait for ever, and the destructor ends it.
void Stopped(const Place& place) {
  float value[4] = {};
  const auto transport = place.Make(kShort);
  if (place.rank == 1) {
    transport->Receive(0, 1, value, 16);
    Completion completion;
    std::unique_lock<std::mutex> lock(place.post.mutex);
    place.post.changed.wait(lock, [&] { return place.post.closed; });
    return;
  }
  transport->Send(1, 1, value, 16);
  Completion completion;
  Check(!transport->Wait(Transport::Clock::now() + kShort / 5, completion), "it ended");
}

void NoDevice(const Place& place) {
  NcclLanes lanes(7);
  float value[4] = {};
  const auto transport = Place{place.post, place.rank, place.size, lanes}.Make(kShort);
  const auto peer = 1 - place.rank;
  const auto one = place.rank == 0 ? transport->Send(peer, 1, value, 16) : transport->Receive(peer, 1, value, 16);
  const auto error = Ended(*transport, 1).at(one);
  Check(error == "cudaSetDevice: invalid device" || error == "connection closed", error);
}

const std::map<std::string, void (*)(const Place&)> kCases = {
    {"values", AllValues}, {"orders", Orders},   {"lengths", Lengths},
    {"silent", Silent},    {"stopped", Stopped}, {"no_device", NoDevice},
};

}  // namespace

int main(int argc, char** argv) {
  const auto size = argc == 3 ? std::atoi(argv[2]) : 0;
  const auto body = kCases.at(argv[1]);
  Post post;
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        NcclLanes lanes(0);
        body({post, rank, size, lanes});
      } catch (const std::exception& error) {
        std::fprintf(stderr, "FAILED on rank %d: %s\n", rank, error.what());
        std::_Exit(1);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  return 0;
}
