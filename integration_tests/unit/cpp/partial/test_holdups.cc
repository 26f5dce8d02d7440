#include <cstdint>
#include <string>

#include "core/partial/holdups.h"
#include "doctest/doctest.h"

using paceline::core::Holdups;

namespace {

constexpr int64_t kTimeout = 50;

}  // namespace

TEST_CASE("a full operation of any set makes a rank absent from all of them, once it has lasted") {
  Holdups holdups(kTimeout);
  holdups.Began(1, "f", false, 100);
  for (const int32_t set : {0, 1, 2}) {
    CHECK_FALSE(holdups.Absent(set, 150));
    CHECK(holdups.Absent(set, 151));
  }
  holdups.Ended(0, "f");  // of another set
  CHECK(holdups.Absent(0, 151));
  CHECK_FALSE(holdups.none());
  holdups.Ended(1, "f");
  CHECK_FALSE(holdups.Absent(0, 1000));
  CHECK(holdups.none());
}

TEST_CASE("a partial call is a vote in its own set and holds the rank up in others") {
  Holdups holdups(kTimeout);
  holdups.Began(1, "p", true, 100);
  CHECK(holdups.Absent(0, 151));
  CHECK_FALSE(holdups.Absent(1, 151));
  holdups.Began(0, "q", true, 120);
  CHECK(holdups.Absent(1, 171));
  CHECK_FALSE(holdups.Absent(1, 170));
  holdups.Ended(1, "p");
  CHECK_FALSE(holdups.Absent(0, 1000));
}

TEST_CASE("the oldest counts, in whatever order they end, and a name can come again") {
  Holdups holdups(kTimeout);
  for (int n = 0; n < 10; ++n) {
    holdups.Began(0, std::to_string(n), false, 100 + n);
  }
  holdups.Began(0, "3", false, 400);  // popped from the queue again: it began before
  for (const int n : {5, 0, 9, 1, 2, 4, 6, 7, 8}) {
    holdups.Ended(0, std::to_string(n));
  }
  CHECK_FALSE(holdups.Absent(0, 153));
  CHECK(holdups.Absent(0, 154));
  holdups.Ended(0, "3");
  holdups.Ended(0, "3");
  holdups.Began(0, "3", false, 400);
  CHECK_FALSE(holdups.Absent(0, 450));
  CHECK(holdups.Absent(0, 451));
}

TEST_CASE("a set that is gone holds nobody up") {
  Holdups holdups(kTimeout);
  holdups.Began(2, "f", false, 100);
  holdups.Began(2, "p", true, 100);
  holdups.Forget(2);
  CHECK_FALSE(holdups.Absent(0, 1000));
}
