#include "bridge/collectives/auto_choice.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <tuple>

#include "bridge/collectives/meeting.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

namespace {

constexpr double kNever_s = std::numeric_limits<double>::max();
// What is told of a method that should take no time at all.
constexpr double kLeast_s = std::numeric_limits<double>::min();

// Encoded messages are classes of their own: they take other times.
int32_t ClassOf(int64_t bytes, bool encoded) {
  return 2 * static_cast<int32_t>(std::ilogb(static_cast<double>(std::max<int64_t>(bytes, 1)))) + (encoded ? 1 : 0);
}

}  // namespace

std::vector<AutoChoice::Candidate> AutoChoice::Candidates(Transport& transport, int64_t bytes, bool encoded) const {
  std::vector<core::TimedChoice> all;
  for (int32_t number = 0; number < core::kAllreduceMethods; ++number) {
    const auto method = static_cast<core::AllreduceMethod>(number);
    if ((!encoded || method != core::AllreduceMethod::kDoubling) &&
        (!in_rank_order_ || core::SumsInRankOrder(method, transport.size()))) {
      all.push_back(predict_(method, static_cast<double>(bytes)));
    }
  }
  double fastest = kNever_s;
  for (const auto& one : all) {
    fastest = std::min(fastest, one.seconds);
  }
  // The same numbers from everybody: what a method worth trying should take, and its block, as rank 0 sees it.
  std::vector<double> proposals;
  proposals.reserve(2 * all.size());
  for (const auto& one : all) {
    const auto ours = transport.rank() == 0;
    proposals.push_back(ours && one.seconds <= worth_trying_ * fastest ? std::max(one.seconds, kLeast_s) : 0);
    proposals.push_back(ours ? one.block_bytes : 0);
  }
  proposals = ::horovod::paceline::Compare(transport, proposals).most;
  std::vector<Candidate> candidates;
  for (size_t n = 0; n < all.size(); ++n) {
    if (proposals[2 * n] != 0) {
      candidates.push_back(
          {{all[n].method, static_cast<int64_t>(proposals[2 * n + 1])}, proposals[2 * n], kNever_s, 0});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& one, const auto& other) {
    return std::tie(one.predicted_s, one.way.method) < std::tie(other.predicted_s, other.way.method);
  });
  return candidates;
}

bool AutoChoice::Decided(int64_t bytes, bool encoded) const {
  const auto found = classes_.find(ClassOf(bytes, encoded));
  return found != classes_.end() && found->second.chosen >= 0;
}

AutoChoice::Pick AutoChoice::For(Transport& transport, int64_t bytes, bool encoded, bool followed) {
  const auto number = ClassOf(bytes, encoded);
  auto& its = classes_[number];
  if (its.candidates.empty()) {
    its.candidates = Candidates(transport, bytes, encoded);
    its.chosen = its.candidates.size() == 1 ? 0 : -1;
  }
  if (its.chosen >= 0) {
    const auto fastest = its.candidates.begin() + its.chosen;
    const auto ring = std::find_if(its.candidates.begin(), its.candidates.end(), [&](const auto& one) {
      return one.way.method == core::AllreduceMethod::kRing && one.best_s <= kAmongOthers * fastest->best_s;
    });
    const auto taken = followed && ring != its.candidates.end() ? ring : fastest;
    return {taken->way, number, static_cast<int32_t>(taken - its.candidates.begin()), false};
  }
  const auto next = std::min_element(its.candidates.begin(), its.candidates.end(),
                                     [](const auto& one, const auto& other) { return one.begun < other.begun; });
  ++next->begun;
  return {next->way, number, static_cast<int32_t>(next - its.candidates.begin()), true};
}

void AutoChoice::Took(const Pick& pick, double seconds) {
  auto& best_s = classes_[pick.size_class].candidates[static_cast<size_t>(pick.candidate)].best_s;
  best_s = std::min(best_s, seconds);
}

// From here on the candidates' times are those of the slowest rank.
void AutoChoice::Compare(Transport& transport, Class& its) const {
  std::vector<double> times;
  times.reserve(its.candidates.size());
  for (const auto& one : its.candidates) {
    times.push_back(one.best_s);
  }
  times = ::horovod::paceline::Compare(transport, times).most;
  for (size_t n = 0; n < times.size(); ++n) {
    its.candidates[n].best_s = times[n];
  }
}

void AutoChoice::Decide(Transport& transport) {
  for (auto& [number, its] : classes_) {
    const auto tried = [&its = its](int32_t times) {
      return std::all_of(its.candidates.begin(), its.candidates.end(),
                         [&](const auto& one) { return one.begun >= times; });
    };
    if (its.chosen >= 0 || !tried(its.compared ? kTrials : 1)) {
      continue;
    }
    Compare(transport, its);
    const auto best = std::min_element(its.candidates.begin(), its.candidates.end(),
                                       [](const auto& one, const auto& other) { return one.best_s < other.best_s; });
    if (tried(kTrials)) {
      its.chosen = static_cast<int32_t>(best - its.candidates.begin());
      continue;
    }
    its.compared = true;
    its.candidates.erase(
        std::remove_if(its.candidates.begin(), its.candidates.end(),
                       [hopeless_s = kHopeless * best->best_s](const auto& one) { return one.best_s > hopeless_s; }),
        its.candidates.end());
    its.chosen = its.candidates.size() == 1 ? 0 : -1;
  }
}

}  // namespace horovod::paceline
