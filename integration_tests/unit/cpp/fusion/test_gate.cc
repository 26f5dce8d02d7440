#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/fusion/gate.h"
#include "doctest/doctest.h"
#include "events.h"

using paceline::core::Gate;
using Numbers = std::vector<int32_t>;

namespace {

constexpr int64_t kTimeout = 100;

// A gate and its clock. Results are the tensors that are let through.
struct Machine : events::Machine {
  Machine() {
    On("plan", [this](const std::vector<int64_t>& group_of) {
      return gate.Follow({group_of.begin(), group_of.end()}, {}, {}, kTimeout);
    });
    On("in", [this](int32_t tensor) { return gate.Arrive(tensor); });
    On("done", [this](int32_t tensor) { gate.Performed(tensor); });
    On("wait", [this](int64_t duration) { return WaitFor(duration); });
    On("stop", [this](int64_t duration) { return gate.Expire(now += duration); });
    On("release", [this] { return gate.Release(); });
    On("expired", [this] { return gate.expired(); });
  }

  // Looks at the gate in every nanosecond.
  Numbers WaitFor(int64_t duration) {
    Numbers out;
    for (const int64_t end = now + duration; now < end;) {
      const auto more = gate.Expire(++now);
      out.insert(out.end(), more.begin(), more.end());
    }
    return out;
  }

  Gate gate;
  int64_t now = 0;
};

static_assert(Gate::kMostStrikes == 3);

constexpr events::Case kCases[] = {
    {"a group goes when its last member comes, in the order of coming", "plan0,0,0,1 in2 in0 in1:2,0,1 release in3:3"},
    {"a tensor that is offered passes every time it is seen, and is held again in the next round",
     "plan0,0 in0 in1:0,1 in0:0 in1:1 done0 in0 in1:1 done1 in1:0,1"},
    {"tensors without a group and tensors that no plan knows pass", "in3:3 plan-1,0,0 in0:0 in17:17"},
    {"nothing is held for longer than the patience after the last arrival; the rest of that round passes at once",
     "plan0,0,0,1,1 wait1000 in0 wait50 in3 wait99 wait1:0,3 expired:2 in1:1 in2:2 done0 done1 done2 in1"},
    {"time in which nobody looked hardly counts, as of a process that was stopped",
     "plan0,0 wait5 in0 stop100000 stop100000 stop100000 stop100000 wait100:0"},
    {"a member that comes again begins a new round and lets go what is held",
     "plan0,0,0 in0 wait100:0 done0 in0 in1 in2:0,1,2"},
    {"a group whose members do not come together is left open after three strikes, until the plan changes",
     "plan0,0 in0 wait100:0 done0 in0 wait100:0 done0 in0 wait100:0 done0 in0:0 expired:3 done0 plan0,0 in0"},
    // 0 and 2 are offered and become one group: a round of theirs is over. 1 waits for 3, which is in flight already.
    {"a change of plan lets go what is held and counts what is in flight as seen",
     "plan0,0,1,1 in0 in2 in3:2,3 plan0,1,0,1:0 in1:1 done0 in0"},
    {"a release lets everything go", "plan0,0,1,1 in2 in0 release:0,2 release"},
};

}  // namespace

TEST_CASE("tensors are held until their group is complete, or the patience is over") {
  events::PlayAll<Machine>(kCases);
}

TEST_CASE("a plan keeps its rounds in line with the steps") {
  Machine machine;
  Numbers group_of;
  std::vector<bool> reduced, earlier;
  std::string rest, step;
  SUBCASE("in the middle of a step") {
    machine.Play("in0:0 done0 in1:1 done1");
    group_of = {0, 0, 0, 0};
    reduced = {true, true};
    rest = "in2 in3:2,3";
    step = "done0 done1 done2 done3 in0 in1 in2 in3:0,1,2,3";
  }
  SUBCASE("while tensors of the step before are on their way, as where an exchange is pipelined") {
    machine.Play("in2:2 in0:0 done0");
    group_of = {0, 0, 0};
    reduced = {true, false, false};
    earlier = {false, true, true};
    rest = "in1 done2 in2:1,2";
    step = "done0 done1 done2 in0 in1 in2:0,1,2";
  }
  SUBCASE("between two steps") {
    machine.Play("in0:0 done0 in1:1 done1");
    group_of = {0, 0};
    reduced = {true, true};
    step = "in1 in0:1,0 done0 done1";
  }
  CHECK(machine.gate.Follow(group_of, reduced, earlier, kTimeout).empty());
  machine.Play(rest);
  for (int n = 0; n < 5; ++n) {
    machine.Play(step);
  }
  machine.Play("wait100 expired:0");
}

TEST_CASE("rounds that are out of line with the steps come into line") {
  Machine machine;
  // The plan came after tensor 0 had been reduced, and the gate was told nothing of it.
  machine.Play("plan0,0,0 in1 in2 wait100:1,2 done0 done1 done2 in0:0 in1 in2 wait100:1,2 done0 done1 done2 in0");
  for (int step = 2; step < 20; ++step) {
    machine.Play("in1 in2:0,1,2 wait100 done0 done1 done2 in0");
  }
  machine.Play("expired:2");
}

TEST_CASE("a strike is forgiven after many complete rounds") {
  Machine machine;
  machine.Play("plan0,0");
  for (int hiccup = 0; hiccup < 3 * Gate::kMostStrikes; ++hiccup) {
    machine.Play("in0 wait100:0 in1:1");
    for (int round = 0; round < 2 * Gate::kForgiving; ++round) {
      machine.Play("done0 done1 in0 in1:0,1");
    }
    machine.Play("done0 done1");
  }
}

TEST_CASE("whatever comes goes exactly once, in any order and under any plans") {
  std::mt19937 random(42);
  constexpr int32_t kTensors = 9;
  Machine machine;
  Gate& gate = machine.gate;
  std::vector<int> inside(kTensors, 0);  // handed in and not let through
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
      let(gate.Follow(group_of, reduced, earlier, kTimeout));
    }
    Numbers order(kTensors);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    order.resize(1 + random() % kTensors);  // the others are unused in this step
    for (const int32_t tensor : order) {
      inside[tensor] = 1;
      let(gate.Arrive(tensor));
    }
    let(machine.WaitFor(kTimeout));
    REQUIRE(gate.Release().empty());
    REQUIRE(std::count(inside.begin(), inside.end(), 1) == 0);
    for (const int32_t tensor : order) {
      gate.Performed(tensor);
    }
  }
}
