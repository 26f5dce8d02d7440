// Collectives side by side, in which everything that may happen happens in a random order.

#ifndef PACELINE_UNIT_COLLECTIVES_RANDOM_ORDER_H
#define PACELINE_UNIT_COLLECTIVES_RANDOM_ORDER_H

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "collectives/job.h"

namespace collectives {

// Ranks begin when they want, start operations late, messages overtake each other, and each side learns of a transfer's
// end in its own time. Nothing moves before both sides have started. Fails the test if nothing can happen any more
// before all have finished.
template <typename Value>
class RandomOrder {
 public:
  explicit RandomOrder(uint32_t seed) : random_(seed) {}

  void Add(Job<Value>& job) {
    for (int32_t rank = 0; rank < job.ranks(); ++rank) {
      Allow({What::kStart, &job, rank});
    }
    jobs_.push_back(&job);
  }

  void Run() {
    while (!possible_.empty()) {
      std::swap(possible_[random_() % possible_.size()], possible_.back());
      const Event event = possible_.back();
      possible_.pop_back();
      Happen(event);
    }
    for (const auto* job : jobs_) {
      REQUIRE(job->finished());
    }
  }

 private:
  enum class What { kStart, kMove, kDone };
  struct Event {
    What what;
    Job<Value>* job;
    int32_t rank = 0, number = 0;
    Transfer transfer = {};
  };

  void Allow(const Event& event) { possible_.push_back(event); }

  void Happen(const Event& event) {
    Job<Value>& job = *event.job;
    switch (event.what) {
      case What::kStart:
        Start(job, event.rank);
        break;
      case What::kMove:
        job.Move(event.transfer);
        Allow({What::kDone, &job, event.transfer.sender, event.transfer.send});
        Allow({What::kDone, &job, event.transfer.receiver, event.transfer.receive});
        break;
      case What::kDone:
        job.Done(event.rank, event.number);
        Allow({What::kStart, &job, event.rank});
        break;
    }
  }

  void Start(Job<Value>& job, int32_t rank) {
    const int32_t number = job.Next(rank);
    if (number < 0) {
      return;
    }
    Allow({What::kStart, &job, rank});
    const Kind kind = job.operation(rank, number).kind;
    Transfer transfer = {};
    if (kind != Kind::kSend && kind != Kind::kReceive) {
      Allow({What::kDone, &job, rank, number});
    } else if (job.Meets(rank, number, transfer)) {
      Allow({What::kMove, &job, 0, 0, transfer});
    }
  }

  std::mt19937 random_;
  std::vector<Job<Value>*> jobs_;
  std::vector<Event> possible_;
};

}  // namespace collectives

#endif  // PACELINE_UNIT_COLLECTIVES_RANDOM_ORDER_H
