#include "bridge/process_sets_change.h"

#include <atomic>
#include <cstdint>
#include <stdexcept>

#include "horovod/common/logging.h"
#include "horovod/common/operations.h"
#include "horovod/common/utils/env_parser.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

namespace {

std::atomic<int32_t> changes_of_process_sets{0};

int64_t Seconds_ns(const char* variable, int by_default) {
  constexpr int64_t kSecond_ns = 1'000'000'000;
  return common::GetIntEnvOrDefault(variable, by_default) * kSecond_ns;
}

}  // namespace

ProcessSetsChange::ProcessSetsChange() { ++changes_of_process_sets; }

ProcessSetsChange::~ProcessSetsChange() { --changes_of_process_sets; }

bool ProcessSetsChange::waited_for() { return changes_of_process_sets > 0; }

void ProcessSetsWatch::BeginWorld() {
  core::SetChanges::Limits limits{0, 0};
  if (!common::GetBoolEnvOrDefault(HOROVOD_STALL_CHECK_DISABLE, false)) {
    limits.warning_ns = Seconds_ns(HOROVOD_STALL_CHECK_TIME_SECONDS, 60);
    // As the stall inspector: no end that comes before the warning.
    const auto end_ns = Seconds_ns(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS, 0);
    limits.error_ns = end_ns < limits.warning_ns ? 0 : end_ns;
  }
  changes_.emplace(limits);
}

void ProcessSetsWatch::RegisteredSets(const std::vector<int>& all) {
  if (common::horovod_rank() != 0 || !changes_) {
    return;
  }
  std::vector<core::SetChanges::OfRank> ranks;
  ranks.reserve(all.size() / 2);
  for (size_t n = 0; n + 1 < all.size(); n += 2) {
    ranks.push_back({all[n], all[n + 1]});
  }
  const auto report = changes_->Follow(ranks, Nanoseconds(Clock::now()));
  if (!report) {
    return;
  }
  if (report->error) {
    throw std::runtime_error(report->text);
  }
  using namespace ::horovod::common;  // the LOG macro names Horovod's classes without their namespace
  LOG(WARNING, 0) << report->text;
}

}  // namespace horovod::paceline
