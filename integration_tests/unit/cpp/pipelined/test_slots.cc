#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "core/pipelined/slots.h"
#include "doctest/doctest.h"

using paceline::core::Pipeline;

namespace {

// What the bridge does with a Pipeline, on numbers: call t brings the gradient t, and reducing it changes nothing.
struct Model {
  explicit Model(int32_t k) : pipeline(k) {}

  void Do(const Pipeline::Todo& todo) {
    if (todo.exchange >= 0) {
      answers.push_back(todo.answered ? std::optional<int>(slots.at(todo.exchange)) : std::nullopt);
      slots[todo.exchange] = brought;
    }
    if (todo.start >= 0) {
      REQUIRE_FALSE(in_flight);
      REQUIRE(slots.at(todo.start) == performed);  // in the order of the calls
      in_flight = true;
    }
  }

  void Call() {
    REQUIRE_FALSE(pipeline.waiting());
    brought = calls++;
    Do(pipeline.Call());
  }

  void Performed() {
    REQUIRE(in_flight);
    in_flight = false;
    ++performed;
    Do(pipeline.Performed());
  }

  Pipeline pipeline;
  std::map<int32_t, int> slots;
  std::vector<std::optional<int>> answers;
  int calls = 0, performed = 0, brought = -1;
  bool in_flight = false;
};

}  // namespace

TEST_CASE("every call is answered with the result of K - 1 calls ago, at once or when that is there") {
  std::mt19937 random(7);
  for (int32_t k = 2; k <= 5; ++k) {
    for (int run = 0; run < 200; ++run) {
      Model model(k);
      while (model.calls < 40) {
        const bool may_call = !model.pipeline.waiting();
        if (may_call && (!model.in_flight || random() % 2 == 0)) {
          model.Call();
        } else {
          model.Performed();
        }
      }
      for (size_t call = 0; call < model.answers.size(); ++call) {
        const int expected = static_cast<int>(call) - (k - 1);
        CHECK(model.answers[call] == (expected >= 0 ? std::optional<int>(expected) : std::nullopt));
      }
      CHECK(model.answers.size() + (model.pipeline.waiting() ? 1 : 0) == 40);
    }
  }
}

TEST_CASE("what is in flight can be taken out and put into a run that goes on as if nothing had been") {
  for (int32_t k = 2; k <= 5; ++k) {
    for (int calls = 0; calls < 3 * k; ++calls) {
      Model model(k);
      for (int call = 0; call < calls; ++call) {
        model.Call();
        while (model.in_flight) {
          model.Performed();
        }
      }
      REQUIRE(model.pipeline.quiet());
      std::vector<int> taken;
      for (const int32_t slot : model.pipeline.Filled()) {
        taken.push_back(model.slots.at(slot));
      }
      CHECK(taken.size() == std::min<size_t>(static_cast<size_t>(calls), static_cast<size_t>(k - 1)));
      Model next(k);
      for (const int value : taken) {
        next.slots[next.pipeline.Put()] = value;
      }
      next.calls = next.performed = model.calls;
      for (int call = 0; call < 2 * k; ++call) {
        next.Call();
        while (next.in_flight) {
          next.Performed();
        }
        const int expected = calls + call - (k - 1);
        CHECK(next.answers.back() == (expected >= 0 ? std::optional<int>(expected) : std::nullopt));
      }
      model.pipeline.Clear();
      CHECK(model.pipeline.Filled().empty());
    }
  }
}

TEST_CASE("more than K - 1 results cannot be put") {
  Pipeline pipeline(3);
  CHECK(pipeline.Put() == 0);
  CHECK(pipeline.Put() == 1);
  CHECK(pipeline.Put() < 0);
}
