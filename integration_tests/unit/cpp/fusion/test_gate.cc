#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "core/fusion/gate.h"
#include "doctest/doctest.h"

using paceline::core::Gate;
using Numbers = std::vector<int32_t>;

namespace {

constexpr int64_t kPatience = 100;

Gate Following(Numbers group_of) {
  Gate gate;
  REQUIRE(gate.Follow(std::move(group_of), {}, {}, kPatience).empty());
  return gate;
}

// Looks at the gate in every nanosecond until the patience is over; what it lets go.
Numbers WaitFor(Gate& gate, int64_t& now, int64_t wait = kPatience) {
  Numbers out;
  for (int64_t end = now + wait; now < end;) {
    const auto more = gate.Expire(++now);
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

}  // namespace

TEST_CASE("a group goes when its last member comes, in the order of coming") {
  auto gate = Following({0, 0, 0, 1});
  CHECK(gate.Arrive(2).empty());
  CHECK(gate.Arrive(0).empty());
  CHECK(gate.Arrive(1) == Numbers{2, 0, 1});
  CHECK(gate.Release().empty());
  CHECK(gate.Arrive(3) == Numbers{3});
}

TEST_CASE("a tensor that is offered passes every time it is seen, and is held again in the next round") {
  auto gate = Following({0, 0});
  gate.Arrive(0);
  gate.Arrive(1);
  CHECK(gate.Arrive(0) == Numbers{0});
  CHECK(gate.Arrive(1) == Numbers{1});
  gate.Performed(0);
  CHECK(gate.Arrive(0).empty());
  CHECK(gate.Arrive(1) == Numbers{1});
  gate.Performed(1);
  CHECK(gate.Arrive(1) == Numbers{0, 1});
}

TEST_CASE("tensors without a group and tensors that no plan knows pass") {
  auto gate = Following({-1, 0, 0});
  CHECK(gate.Arrive(0) == Numbers{0});
  CHECK(gate.Arrive(17) == Numbers{17});
  CHECK(Gate().Arrive(3) == Numbers{3});
}

TEST_CASE("nothing is held for longer than the patience after the last arrival") {
  auto gate = Following({0, 0, 0, 1, 1});
  int64_t now = 1000;
  gate.Expire(now);
  gate.Arrive(0);
  CHECK(WaitFor(gate, now, kPatience / 2).empty());
  gate.Arrive(3);
  CHECK(WaitFor(gate, now, kPatience - 1).empty());
  CHECK(WaitFor(gate, now, 1) == Numbers{0, 3});
  CHECK(gate.expired() == 2);
  // The rest of that round passes at once.
  CHECK(gate.Arrive(1) == Numbers{1});
  CHECK(gate.Arrive(2) == Numbers{2});
  // The next round is held again.
  for (int32_t t = 0; t < 3; ++t) {
    gate.Performed(t);
  }
  CHECK(gate.Arrive(1).empty());
}

TEST_CASE("time in which nobody looked hardly counts") {
  auto gate = Following({0, 0});
  int64_t now = 5;
  gate.Expire(now);
  gate.Arrive(0);
  for (int stop = 0; stop < 4; ++stop) {
    now += 1000 * kPatience;  // the process was stopped
    CHECK(gate.Expire(now).empty());
  }
  CHECK(WaitFor(gate, now) == Numbers{0});
}

TEST_CASE("a member that comes again begins a new round and lets go what is held") {
  auto gate = Following({0, 0, 0});
  int64_t now = 0;
  gate.Arrive(0);
  CHECK(WaitFor(gate, now) == Numbers{0});
  gate.Performed(0);
  CHECK(gate.Arrive(0).empty());  // collecting again
  CHECK(gate.Arrive(1).empty());
  CHECK(gate.Arrive(2) == Numbers{0, 1, 2});
}

TEST_CASE("a group whose members do not come together is left open after three strikes, until the plan changes") {
  auto gate = Following({0, 0});
  int64_t now = 0;
  for (int strike = 0; strike < Gate::kMostStrikes; ++strike) {
    CHECK(gate.Arrive(0).empty());
    CHECK(WaitFor(gate, now) == Numbers{0});
    gate.Performed(0);
  }
  CHECK(gate.Arrive(0) == Numbers{0});
  CHECK(gate.expired() == Gate::kMostStrikes);
  gate.Performed(0);
  CHECK(gate.Follow({0, 0}, {}, {}, kPatience).empty());
  CHECK(gate.Arrive(0).empty());
}

TEST_CASE("a change of plan lets go what is held and counts what is on its way as seen") {
  auto gate = Following({0, 0, 1, 1});
  gate.Arrive(0);
  gate.Arrive(2);
  gate.Arrive(3);  // 2 and 3 are offered
  CHECK(gate.Follow({0, 1, 0, 1}, {}, {}, kPatience) == Numbers{0});
  // 0 and 2 are offered and one group: a round of theirs is over. 1 waits for 3, which is on its way already.
  CHECK(gate.Arrive(1) == Numbers{1});
  gate.Performed(0);
  CHECK(gate.Arrive(0).empty());
}

TEST_CASE("a plan in the middle of a step keeps its rounds in line with the steps") {
  Gate gate;
  int64_t now = 0;
  for (const int32_t early : {0, 1}) {
    CHECK(gate.Arrive(early) == Numbers{early});
    gate.Performed(early);  // reduced before the plan comes
  }
  CHECK(gate.Follow({0, 0, 0, 0}, {true, true}, {}, kPatience).empty());
  CHECK(gate.Arrive(2).empty());
  CHECK(gate.Arrive(3) == Numbers{2, 3});
  for (int step = 0; step < 5; ++step) {
    for (int32_t t = 0; t < 4; ++t) {
      gate.Performed(t);
    }
    CHECK(gate.Arrive(0).empty());
    CHECK(gate.Arrive(1).empty());
    CHECK(gate.Arrive(2).empty());
    CHECK(gate.Arrive(3) == Numbers{0, 1, 2, 3});
  }
  CHECK(WaitFor(gate, now).empty());
  CHECK(gate.expired() == 0);
}

TEST_CASE("a plan that comes while tensors of the step before are on their way keeps rounds in line") {
  Gate gate;
  CHECK(gate.Arrive(2) == Numbers{2});  // of the step before, as where an exchange is pipelined
  CHECK(gate.Arrive(0) == Numbers{0});
  gate.Performed(0);
  CHECK(gate.Follow({0, 0, 0}, {true, false, false}, {false, true, true}, kPatience).empty());
  CHECK(gate.Arrive(1).empty());
  gate.Performed(2);
  CHECK(gate.Arrive(2) == Numbers{1, 2});
  for (int step = 0; step < 5; ++step) {
    for (int32_t t = 0; t < 3; ++t) {
      gate.Performed(t);
    }
    CHECK(gate.Arrive(0).empty());
    CHECK(gate.Arrive(1).empty());
    CHECK(gate.Arrive(2) == Numbers{0, 1, 2});
  }
}

TEST_CASE("a plan between two steps begins with the next") {
  Gate gate;
  for (const int32_t tensor : {0, 1}) {
    gate.Arrive(tensor);
    gate.Performed(tensor);
  }
  CHECK(gate.Follow({0, 0}, {true, true}, {}, kPatience).empty());
  CHECK(gate.Arrive(1).empty());
  CHECK(gate.Arrive(0) == Numbers{1, 0});
}

TEST_CASE("rounds that are out of line with the steps come into line") {
  auto gate = Following({0, 0, 0});
  int64_t now = 0;
  // The plan came after tensor 0 had been reduced, and the gate was told nothing of it.
  for (int step = 0; step < 20; ++step) {
    for (const int32_t tensor : {1, 2}) {
      gate.Arrive(tensor);
    }
    WaitFor(gate, now);
    for (int32_t t = 0; t < 3; ++t) {
      gate.Performed(t);
    }
    gate.Arrive(0);
  }
  CHECK(gate.expired() == 2);
}

TEST_CASE("a strike is forgiven after many complete rounds") {
  auto gate = Following({0, 0});
  int64_t now = 0;
  for (int hiccup = 0; hiccup < 3 * Gate::kMostStrikes; ++hiccup) {
    CHECK(gate.Arrive(0).empty());
    CHECK(WaitFor(gate, now) == Numbers{0});
    CHECK(gate.Arrive(1) == Numbers{1});
    for (int round = 0; round < 2 * Gate::kForgiving; ++round) {
      gate.Performed(0);
      gate.Performed(1);
      CHECK(gate.Arrive(0).empty());
      CHECK(gate.Arrive(1) == Numbers{0, 1});
    }
    gate.Performed(0);
    gate.Performed(1);
  }
}

TEST_CASE("a release lets everything go") {
  auto gate = Following({0, 0, 1, 1});
  gate.Arrive(2);
  gate.Arrive(0);
  CHECK(gate.Release() == Numbers{0, 2});
  CHECK(gate.Release().empty());
}

TEST_CASE("whatever comes goes exactly once, in any order and under any plans") {
  std::mt19937 random(42);
  constexpr int32_t kTensors = 9;
  Gate gate;
  std::vector<int> inside(kTensors, 0);  // handed in and not let through
  int64_t now = 0;
  auto let = [&](const Numbers& numbers) {
    for (const int32_t number : numbers) {
      REQUIRE(inside[number] == 1);
      inside[number] = 0;
    }
  };
  for (int step = 0; step < 3000; ++step) {
    if (step % 7 == 0) {
      Numbers group_of(kTensors);
      for (auto& group : group_of) {
        group = static_cast<int32_t>(random() % 4) - 1;
      }
      // Groups are numbered without gaps.
      const std::set<int32_t> used(group_of.begin(), group_of.end());
      for (auto& group : group_of) {
        group = group < 0 ? -1 : static_cast<int32_t>(std::distance(used.upper_bound(-1), used.find(group)));
      }
      std::vector<bool> reduced(kTensors), earlier(kTensors);
      for (size_t t = 0; t < reduced.size(); ++t) {
        reduced[t] = random() % 2 == 0;  // right or wrong
        earlier[t] = random() % 2 == 0;
      }
      let(gate.Follow(group_of, reduced, earlier, kPatience));
    }
    Numbers order(kTensors);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    order.resize(1 + random() % kTensors);  // the others are unused in this step
    for (const int32_t tensor : order) {
      inside[tensor] = 1;
      let(gate.Arrive(tensor));
    }
    let(WaitFor(gate, now));
    REQUIRE(gate.Release().empty());
    REQUIRE(std::count(inside.begin(), inside.end(), 1) == 0);
    for (const int32_t tensor : order) {
      gate.Performed(tensor);
    }
  }
}
