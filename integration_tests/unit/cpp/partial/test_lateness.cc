#include "core/partial/lateness.h"
#include "doctest/doctest.h"

using paceline::core::Lateness;

namespace {

constexpr int64_t kStep_ns = 100;

// Rounds of two names, a step every kStep_ns, without rank 2 in every `missed`-th step, which comes late by late_ns.
void Steps(Lateness& lateness, int64_t steps, int64_t missed, int64_t late_ns, int64_t& now_ns) {
  for (int64_t step = 0; step < steps; ++step) {
    for (int name = 0; name < 2; ++name) {
      const bool late = step % missed == 0;
      lateness.Sent({false, false, late});
      lateness.Called(2);
      if (late) {
        lateness.CameLate(2, late_ns);
      }
    }
    now_ns += kStep_ns;
  }
}

}  // namespace

TEST_CASE("a rank that is late in most steps is reported once") {
  Lateness lateness(3);
  int64_t now_ns = 1;
  CHECK_FALSE(lateness.Look(2, now_ns));
  Steps(lateness, Lateness::kSteps - 1, 1, 30, now_ns);
  CHECK_FALSE(lateness.Look(2, now_ns));
  Steps(lateness, 1, 1, 30, now_ns);
  const auto found = lateness.Look(2, now_ns);
  REQUIRE(found);
  CHECK(found->rank == 2);
  CHECK(found->calls == Lateness::kSteps);
  CHECK(found->step_ns == kStep_ns);
  CHECK(found->late == Lateness::kSteps);
  CHECK(found->mean_late_ns == 30);
  Steps(lateness, Lateness::kSteps, 1, 30, now_ns);
  CHECK_FALSE(lateness.Look(2, now_ns));
  const auto totals = lateness.totals();
  CHECK(totals.rounds == 4 * Lateness::kSteps);
  CHECK(totals.ranks[2].missed == 4 * Lateness::kSteps);
  CHECK(totals.ranks[0].missed == 0);
}

TEST_CASE("the last of equals is no straggler, nor is one that is late at times") {
  for (const auto& [missed, late_ns] : {std::pair<int64_t, int64_t>{1, 9}, {2, 90}}) {
    Lateness lateness(3);
    int64_t now_ns = 1;
    CHECK_FALSE(lateness.Look(2, now_ns));
    Steps(lateness, Lateness::kSteps, missed, late_ns, now_ns);
    CHECK_FALSE(lateness.Look(2, now_ns));
  }
}
