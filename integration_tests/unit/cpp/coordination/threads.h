// Ranks that are threads of one process, and a transport between them.

#ifndef PACELINE_TESTS_COORDINATION_THREADS_H
#define PACELINE_TESTS_COORDINATION_THREADS_H

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "bridge/transport.h"

namespace threads {

using horovod::paceline::Completion;
using horovod::paceline::Transport;

// Messages on their way, in the order in which they were sent under a tag.
struct Post {
  std::mutex mutex;  // protects what follows
  std::condition_variable changed;
  std::map<std::tuple<int32_t, int32_t, uint64_t>, std::deque<std::vector<uint8_t>>> sent;  // by sender, receiver, tag
  bool closed = false;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(Post& post, int32_t rank, int32_t size, std::chrono::milliseconds limit)
      : post_(post), rank_(rank), size_(size), limit_(limit) {}

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }
  std::chrono::milliseconds limit() const override { return limit_; }

  uint64_t Send(int32_t peer, uint64_t tag, const void* data, size_t bytes) override {
    const std::lock_guard<std::mutex> lock(post_.mutex);
    const auto* first = static_cast<const uint8_t*>(data);
    post_.sent[{rank_, peer, tag}].emplace_back(first, first + bytes);
    post_.changed.notify_all();
    completed_.push_back(++made_);
    return made_;
  }
  uint64_t Receive(int32_t peer, uint64_t tag, void* data, size_t bytes) override {
    posted_[++made_] = {peer, tag, static_cast<uint8_t*>(data), bytes};
    return made_;
  }
  bool Wait(Clock::time_point until, Completion& completion) override {
    std::unique_lock<std::mutex> lock(post_.mutex);
    // Looks first: ThreadSanitizer of GCC 12 takes waits until a moment of the past for none.
    if (Ended(completion)) {
      return true;
    }
    return until > Clock::now() && post_.changed.wait_until(lock, until, [&] { return Ended(completion); });
  }
  void Abort() override {
    const std::lock_guard<std::mutex> lock(post_.mutex);
    post_.closed = true;
    post_.changed.notify_all();
  }
  void Leave() override { posted_.clear(); }

 private:
  struct Posted {
    int32_t peer;
    uint64_t tag;
    uint8_t* data;
    size_t bytes;
  };

  bool Ended(Completion& completion) {
    if (!completed_.empty()) {
      completion = {completed_.back(), "", false};
      completed_.pop_back();
      return true;
    }
    for (auto at = posted_.begin(); at != posted_.end(); ++at) {  // the first that was posted under a tag comes first
      const auto& [peer, tag, data, bytes] = at->second;
      auto& sent = post_.sent[{peer, rank_, tag}];
      if (sent.empty() && !post_.closed) {
        continue;
      }
      completion = {at->first, sent.empty() ? "connection closed" : "", false};
      if (!sent.empty()) {
        if (sent.front().size() > bytes) {
          completion.error = "a longer message";
        } else {
          std::copy(sent.front().begin(), sent.front().end(), data);
        }
        sent.pop_front();
      }
      posted_.erase(at);
      return true;
    }
    return false;
  }

  Post& post_;
  const int32_t rank_, size_;
  const std::chrono::milliseconds limit_;
  uint64_t made_ = 0;
  std::vector<uint64_t> completed_;
  std::map<uint64_t, Posted> posted_;
};

// Runs `body(rank)` in a thread for each rank.
inline void Run(int32_t size, const std::function<void(int32_t rank)>& body) {
  std::vector<std::thread> all;
  for (int32_t rank = 0; rank < size; ++rank) {
    all.emplace_back(body, rank);
  }
  for (auto& one : all) {
    one.join();
  }
}

}  // namespace threads

#endif  // PACELINE_TESTS_COORDINATION_THREADS_H
