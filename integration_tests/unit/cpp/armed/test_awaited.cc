// What is handed in for an armed step, and which of it need not begin a round.

#include "core/armed/awaited.h"
#include "doctest/doctest.h"

using paceline::core::Awaited;

namespace {

// Of a first group a, b, c, and others d, e.
void Expect(Awaited& awaited) { awaited.Expect({"a", "b", "c"}, {"d", "e"}); }

}  // namespace

TEST_CASE("the last tensor of the first group begins the round, whatever the order") {
  Awaited awaited;
  Expect(awaited);
  for (int step = 0; step < 3; ++step) {
    awaited.Begin();
    CHECK(awaited.Held("b"));
    CHECK(awaited.Held("d"));
    CHECK(awaited.Held("c"));
    CHECK_FALSE(awaited.Held("a"));
    CHECK(awaited.Held("e"));  // goes without one
  }
}

TEST_CASE("another operation is not held") {
  Awaited awaited;
  Expect(awaited);
  awaited.Begin();
  CHECK(awaited.Held("a"));
  CHECK_FALSE(awaited.Held("loss"));
  CHECK(awaited.Held("b"));
  CHECK_FALSE(awaited.Held("c"));
}

TEST_CASE("nothing is held before the first step, and after one that may have begun") {
  Awaited awaited;
  CHECK_FALSE(awaited.Held("a"));
  Expect(awaited);
  CHECK_FALSE(awaited.Held("a"));
  awaited.Begin();
  CHECK(awaited.Held("a"));
  awaited.Stop();
  CHECK_FALSE(awaited.Held("b"));
  CHECK_FALSE(awaited.Held("d"));
  awaited.Begin();
  CHECK(awaited.Held("b"));
}

TEST_CASE("a tensor that comes again ends the counting: steps are not what they were") {
  Awaited awaited;
  Expect(awaited);
  awaited.Begin();
  CHECK(awaited.Held("a"));
  CHECK_FALSE(awaited.Held("a"));
  CHECK_FALSE(awaited.Held("b"));
  CHECK_FALSE(awaited.Held("d"));
}

TEST_CASE("another plan's tensors take the place of the last one's") {
  Awaited awaited;
  Expect(awaited);
  awaited.Begin();
  awaited.Expect({"d"}, {"a"});
  CHECK_FALSE(awaited.Held("a"));
  awaited.Begin();
  CHECK(awaited.Held("a"));
  CHECK_FALSE(awaited.Held("d"));
  CHECK_FALSE(awaited.Held("b"));
}
