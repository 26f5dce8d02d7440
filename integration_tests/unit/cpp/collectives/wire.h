// How long a collective takes on hosts with one full-duplex card each: by events, message by message.

#ifndef PACELINE_UNIT_COLLECTIVES_WIRE_H
#define PACELINE_UNIT_COLLECTIVES_WIRE_H

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/job.h"

namespace collectives {

// A message of n elements keeps the sender's card for message_s + n beta_s, latency_s later the receiver's. Each card
// sends one message at a time, and receives one at a time, in the order in which they could begin.
struct Wire {
  double latency_s = 0, message_s = 0, beta_s = 0;
  double gamma_s = 0;   // to combine an element, one operation of a rank at a time
  double notice_s = 0;  // so much later the sender knows of a receive; at once of those posted before the beginning
  bool link_per_neighbour = false;  // a card of its own for each
};

class Timing {
 public:
  explicit Timing(const Wire& wire) : wire_(wire) {}

  // Seconds until all ranks have finished.
  double Run(Job<char>& job) {
    for (int32_t rank = 0; rank < job.ranks(); ++rank) {
      Start(job, rank);
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_s_ = event.at_s;
      event.happen();
    }
    REQUIRE(job.finished());
    return now_s_;
  }

 private:
  struct Event {
    double at_s;
    int32_t order;   // of what happens at the same time: ends of operations, then sends by their place in the list
    int64_t number;  // of several of these, the one that was planned first
    std::function<void()> happen;
    bool operator<(const Event& other) const {
      return std::tuple(other.at_s, other.order, other.number) < std::tuple(at_s, order, number);
    }
  };
  using Card = std::map<std::pair<int32_t, int32_t>, double>;  // by rank and, if links are per neighbour, peer: free at

  void At(double at_s, std::function<void()> happen, int32_t order = -1) {
    events_.push({at_s, order, count_++, std::move(happen)});
  }

  double& Of(Card& card, int32_t rank, int32_t peer) const { return card[{rank, wire_.link_per_neighbour ? peer : 0}]; }

  void Done(Job<char>& job, int32_t rank, int32_t number) {
    job.Done(rank, number);
    Start(job, rank);
  }

  void Start(Job<char>& job, int32_t rank) {
    for (int32_t number = job.Next(rank); number >= 0; number = job.Next(rank)) {
      const Operation& operation = job.operation(rank, number);
      Transfer transfer = {};
      if (operation.kind == Kind::kCopy) {
        At(now_s_, [=, &job] { Done(job, rank, number); });
      } else if (operation.kind == Kind::kCombine || operation.kind == Kind::kCombineAway) {
        double& free_s = processor_[rank];
        free_s = std::max(free_s, now_s_) + static_cast<double>(operation.count) * wire_.gamma_s;
        At(free_s, [=, &job] { Done(job, rank, number); });
      } else {
        if (operation.kind == Kind::kReceive) {
          known_s_[{rank, number}] = now_s_ > 0 ? now_s_ + wire_.notice_s : 0;
        }
        if (job.Meets(rank, number, transfer)) {
          const double known_s = known_s_[{transfer.receiver, transfer.receive}];
          At(std::max(now_s_, known_s), [=, &job] { Send(job, transfer); }, transfer.send);
        }
      }
    }
  }

  void Send(Job<char>& job, const Transfer& transfer) {
    const auto count = static_cast<double>(job.operation(transfer.sender, transfer.send).count);
    const double busy_s = wire_.message_s + count * wire_.beta_s;
    double& out_s = Of(out_, transfer.sender, transfer.receiver);
    const double begin_s = std::max(now_s_, out_s);
    out_s = begin_s + busy_s;
    At(out_s, [=, &job] { Done(job, transfer.sender, transfer.send); });
    At(begin_s + wire_.latency_s, [=, &job] { Arrive(job, transfer, busy_s); }, transfer.send);
  }

  void Arrive(Job<char>& job, const Transfer& transfer, double busy_s) {
    double& in_s = Of(in_, transfer.receiver, transfer.sender);
    in_s = std::max(now_s_, in_s) + busy_s;
    At(in_s, [=, &job] {
      job.Move(transfer);
      Done(job, transfer.receiver, transfer.receive);
    });
  }

  Wire wire_;
  double now_s_ = 0;
  int64_t count_ = 0;
  std::priority_queue<Event> events_;
  Card out_, in_;
  std::map<int32_t, double> processor_;                    // by rank: free at
  std::map<std::pair<int32_t, int32_t>, double> known_s_;  // by rank and receive
};

// Of the schedules of all ranks.
inline double SecondsOn(const Wire& wire, std::vector<CollectiveSchedule> schedules, int64_t elements) {
  Job<char> job(
      std::move(schedules), elements, [](int32_t, int64_t) { return '\0'; }, [](char one, char) { return one; });
  return Timing(wire).Run(job);
}

// Every message takes one step.
inline double StepsOf(const std::vector<CollectiveSchedule>& schedules, int64_t elements,
                      bool link_per_neighbour = false) {
  Wire wire;
  wire.message_s = 1;
  wire.link_per_neighbour = link_per_neighbour;
  return SecondsOn(wire, schedules, elements);
}

}  // namespace collectives

#endif  // PACELINE_UNIT_COLLECTIVES_WIRE_H
