// Partial collectives under all interleavings of calls, cycles and rounds.

#include <algorithm>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "partial/model.h"

using paceline::core::QuorumRule;
using paceline::core::RoundState;
using partial_model::Job;
using partial_model::Model;

namespace {

// A sanitizer makes the search ten times slower, and has seen all code in the shorter one.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kCalls = 2;
#else
constexpr int kCalls = 3;
#endif

template <typename State = RoundState>
Found ExploreJob(const Job& job) {
  return Explore(Model<State>(job), [](const auto&) {});
}

std::string NameOf(const Job& job) {
  const std::string quorum = job.rule.count == 0 ? "initiator" : "quorum " + std::to_string(job.rule.count);
  return quorum + ", max_lag " + std::to_string(job.rule.max_lag) + (job.blocking ? ", blocking" : ", asynchronous") +
         (job.sets.size() > 1
              ? ", sets of " + std::to_string(job.sets[0].size()) + " and " + std::to_string(job.sets[1].size())
              : "") +
         (job.barrier >= 0 ? ", all meet before step " + std::to_string(job.barrier) : "");
}

// Solo, majority, everybody and the paper's initiator (count 0); then with max_lag, the last number.
const std::vector<QuorumRule> kRules = {{1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {0, 1, 0},
                                        {1, 0, 1}, {2, 0, 1}, {0, 1, 1}, {2, 0, 2}};

void CheckHolds(const Job& job) {
  const Found found = ExploreJob(job);
  MESSAGE(NameOf(job) << ": " << found.visited.size() << " states, " << found.ends << " final");
  CAPTURE(found.steps);
  CHECK(found.fault == "");
  CHECK(found.ends > 0);
}

void CheckFound(const Found& found, const std::string& fault) {
  CAPTURE(found.visited.size());
  CHECK(found.fault == fault);
}

// Takes votes of rounds that have run.
struct NeverStale : RoundState {
  static bool Stale(int64_t /*round*/) { return false; }
};

// Leaves alone what was carried over.
struct FreshOnly : RoundState {
  Departure Begin() {
    Departure departure = RoundState::Begin();
    departure.carried = 0;
    return departure;
  }
};

// Gives results away that nobody waits for.
struct Generous : RoundState {
  int64_t End(bool closing) {
    const int64_t rounds = RoundState::End(closing);
    return rounds > 0 || phase() == Phase::kFlushing ? rounds : 1;
  }
};

}  // namespace

TEST_CASE("nothing is lost, doubled, too old or stuck, whatever comes first") {
  for (const QuorumRule& rule : kRules) {
    for (const bool blocking : {true, false}) {
      Job job;
      job.rule = rule;
      job.calls = kCalls;
      job.blocking = blocking;
      CheckHolds(job);
    }
  }
}

TEST_CASE("the same around an operation that needs all ranks") {
  for (const QuorumRule& rule : kRules) {
    for (const int barrier : {kCalls - 1, kCalls}) {
      Job job;
      job.rule = rule;
      job.calls = kCalls;
      job.barrier = barrier;
      CheckHolds(job);
    }
  }
}

namespace {

// Some ranks are in two sets: one with all ranks, or two that overlap. Each set has a name, or the first one alone and
// the ranks of the second meet before each step.
std::vector<Job> TwoSets() {
  const std::vector<partial_model::Members> within = {{{0, 1, 2}}, {{1, 2}}}, overlapping = {{{0, 1}}, {{1, 2}}};
  std::vector<Job> jobs;
  for (const QuorumRule& rule : kRules) {
    Job job;
    job.rule = rule;
    job.rule.count = std::min(rule.count, 2);
    job.set_of = {0, 1};
    job.again = true;
    job.flushes_at_once = false;  // set by set
    job.calls = 2;
    for (const auto& sets : {within, overlapping}) {
      job.sets = sets;
      jobs.push_back(job);
    }
    job.sets = within;
    job.names = 1;
    job.calls = kCalls;
    job.barrier = 1;
    jobs.push_back(job);
  }
  return jobs;
}

}  // namespace

TEST_CASE("the same with ranks that are in two process sets") {
  for (const Job& job : TwoSets()) {
    CheckHolds(job);
  }
}

TEST_CASE("a rank that waits in one set must say so in the other") {
  int deadlocks = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Job job;
    job.rule = QuorumRule::RandomInitiator(seed);
    job.names = 1;
    job.calls = 4;
    job.barrier = 1;
    job.again = true;
    job.sets = {{{0, 1, 2}}, {{1, 2}}};
    job.reports_absence = false;
    deadlocks += ExploreJob(job).fault == "a deadlock" ? 1 : 0;
  }
  CHECK(deadlocks > 0);
}

namespace {

// The first name is called in the first and the last step only.
Job RareName(uint64_t seed, bool ends_standstills) {
  Job job;
  job.rule = QuorumRule::RandomInitiator(seed);
  job.calls = 5;
  job.rare_name = 0;
  job.ends_standstills = ends_standstills;
  return job;
}

}  // namespace

TEST_CASE("a name that is not called in each step makes ranks wait for each other, until the standstill is noticed") {
  int deadlocks = 0;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    deadlocks += ExploreJob(RareName(seed, false)).fault == "a deadlock" ? 1 : 0;
    CheckHolds(RareName(seed, true));
  }
  CHECK(deadlocks > 0);
}

TEST_CASE("nothing is lost, doubled or stuck if a standstill is seen where there is none") {
  for (const QuorumRule& rule : kRules) {
    Job job;
    job.rule = rule;
    job.blocking = false;
    job.ends_standstills = true;
    CheckHolds(job);
  }
}

TEST_CASE("the search finds faults of data and of rounds") {
  Job job;
  job.rule = QuorumRule::Majority(3);
  CheckFound(ExploreJob<NeverStale>(job), "a rank votes twice");
  CheckFound(ExploreJob<FreshOnly>(job), "a contribution is left behind by the flush");
  CheckFound(ExploreJob<Generous>(job), "results missed and not counted");
  job.clears_send = false;
  CheckFound(ExploreJob(job), "a contribution is lost or counted twice");
}

TEST_CASE("the promises are tight: a stronger one is broken") {
  Job job;
  job.rule = QuorumRule::Majority(3);
  job.promised = QuorumRule{3, 0, 0};
  CheckFound(ExploreJob(job), "fewer fresh contributions than the quorum");
  job.rule.max_lag = 2;
  job.promised = QuorumRule{2, 0, 1};
  CheckFound(ExploreJob(job), "a contribution is older than max_lag");
  job.rule = QuorumRule::Solo();
  job.promised = QuorumRule::RandomInitiator(1);
  CheckFound(ExploreJob(job), "a round without its initiator");
}

TEST_CASE("two names wait for each other if late calls are not reported") {
  Job job;
  job.rule = QuorumRule::RandomInitiator(1);
  job.calls = 4;
  job.reports_late = false;
  CheckFound(ExploreJob(job), "a deadlock");
  if (kCalls == 3) {
    job.rule = {1, 0, 2};
    job.calls = 3;
    CheckFound(ExploreJob(job), "a deadlock");
  }
}

TEST_CASE("a rank that waits elsewhere must say so") {
  Job job;
  job.rule = QuorumRule::Majority(3);
  job.flushes_at_once = false;
  CheckFound(ExploreJob(job), "a deadlock");
  job.flushes_at_once = true;
  job.barrier = 3;
  job.reports_absence = false;
  CheckFound(ExploreJob(job), "a deadlock");
}
