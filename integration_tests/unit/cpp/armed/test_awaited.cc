// What is handed in for an armed step, and which of it need not begin a round.

#include "core/armed/awaited.h"
#include "doctest/doctest.h"

using paceline::core::Awaited;
using paceline::core::Need;

namespace {

// Of a first group a, b, c, and others d, e.
void Expect(Awaited& awaited) { awaited.Expect({"a", "b", "c"}, {"d", "e"}); }

}  // namespace

TEST_CASE("the last tensor of the first group begins the round, whatever the order") {
  Awaited awaited;
  Expect(awaited);
  for (int step = 0; step < 3; ++step) {
    awaited.Begin();
    CHECK(awaited.Of("b") == Need::kOthers);
    CHECK(awaited.Of("d") == Need::kOthers);
    CHECK(awaited.Of("c") == Need::kOthers);
    CHECK(awaited.Of("a") == Need::kRound);
    CHECK(awaited.Of("e") == Need::kNone);
  }
}

TEST_CASE("another operation is not held") {
  Awaited awaited;
  Expect(awaited);
  awaited.Begin();
  CHECK(awaited.Of("a") == Need::kOthers);
  CHECK(awaited.Of("loss") == Need::kRound);
  CHECK(awaited.Of("b") == Need::kOthers);
  CHECK(awaited.Of("c") == Need::kRound);
}

TEST_CASE("nothing is held before the first step, and after one that may have begun") {
  Awaited awaited;
  CHECK(awaited.Of("a") == Need::kRound);
  Expect(awaited);
  CHECK(awaited.Of("a") == Need::kRound);
  awaited.Begin();
  CHECK(awaited.Of("a") == Need::kOthers);
  awaited.Stop();
  CHECK(awaited.Of("b") == Need::kRound);
  CHECK(awaited.Of("d") == Need::kRound);
  awaited.Begin();
  CHECK(awaited.Of("b") == Need::kOthers);
}

TEST_CASE("a tensor that comes again ends the counting: steps are not what they were") {
  Awaited awaited;
  Expect(awaited);
  awaited.Begin();
  CHECK(awaited.Of("a") == Need::kOthers);
  CHECK(awaited.Of("a") == Need::kRound);
  CHECK(awaited.Of("b") == Need::kRound);
  CHECK(awaited.Of("d") == Need::kRound);
}

TEST_CASE("another plan's tensors take the place of the last one's") {
  Awaited awaited;
  Expect(awaited);
  awaited.Begin();
  awaited.Expect({"d"}, {"a"});
  CHECK(awaited.Of("a") == Need::kRound);
  awaited.Begin();
  CHECK(awaited.Of("a") == Need::kOthers);
  CHECK(awaited.Of("d") == Need::kRound);
  CHECK(awaited.Of("b") == Need::kRound);
}
