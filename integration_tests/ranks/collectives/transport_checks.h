// What tests of transports have in common: what ranks bring, what must come out, and collectives over a transport.

#ifndef INTEGRATION_TESTS_RANKS_COLLECTIVES_TRANSPORT_CHECKS_H
#define INTEGRATION_TESTS_RANKS_COLLECTIVES_TRANSPORT_CHECKS_H

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bridge/collectives/engine.h"
#include "bridge/transport.h"
#include "core/collectives/algorithms.h"

namespace transport_checks {

namespace core = paceline::core;
using horovod::paceline::Collective;
using horovod::paceline::Completion;
using horovod::paceline::Engine;
using horovod::paceline::Transport;
using std::chrono::milliseconds;

constexpr milliseconds kLong{60000};
constexpr milliseconds kShort{1000};
constexpr int64_t kBlock = 16;
constexpr int64_t kSizes[] = {0, 1, 3, 15, 16, 17, 97, 1001, 5001};

inline void Check(bool holds, const std::string& what) {
  if (!holds) {
    throw std::runtime_error(what);
  }
}

// What a rank brings: says whose and which it is, and sums are exact.
inline std::vector<float> Brings(int32_t rank, int64_t elements, int32_t which) {
  std::vector<float> values(static_cast<size_t>(elements));
  for (size_t index = 0; index < values.size(); ++index) {
    values[index] = static_cast<float>((rank + 1) * 1000 + static_cast<int>(index % 97) + which);
  }
  return values;
}

inline std::vector<float> Sum(int32_t ranks, int64_t elements, int32_t which) {
  std::vector<float> sum(static_cast<size_t>(elements));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const auto brings = Brings(rank, elements, which);
    for (size_t index = 0; index < sum.size(); ++index) {
      sum[index] += brings[index];
    }
  }
  return sum;
}

inline std::shared_ptr<const core::CollectiveSchedule> Shared(core::CollectiveSchedule schedule) {
  return std::make_shared<const core::CollectiveSchedule>(std::move(schedule));
}

// Every algorithm, all sizes of messages under way at once; more of them in a row than there are tags.
inline void Values(const std::function<std::unique_ptr<Transport>()>& make) {
  uint32_t sequence = 0;
  for (int32_t repeat = 0; repeat < 4; ++repeat) {
    for (int32_t method = 0; method < core::kAllreduceMethods; ++method) {
      const auto transport = make();  // one for each message, as Horovod's operations make them
      const core::Place place{transport->rank(), transport->size()};
      std::vector<std::vector<float>> results;
      for (const auto elements : kSizes) {
        results.push_back(Brings(place.rank, elements, method));
      }
      Engine engine(*transport);
      for (auto& result : results) {
        const core::BlockedMessage message{static_cast<int64_t>(result.size()), kBlock};
        Collective one;
        one.name = "values";
        one.schedule = Shared(core::Allreduce(static_cast<core::AllreduceMethod>(method), place, message));
        one.result = result.data();
        one.sequence = sequence++;
        engine.Begin(one);
      }
      engine.Finish();
      for (const auto& result : results) {
        const auto wanted = Sum(place.ranks, static_cast<int64_t>(result.size()), method);
        Check(result == wanted, std::string("wrong sum: ") + core::NameOf(static_cast<core::AllreduceMethod>(method)));
      }
    }
    for (int32_t root = 0;; ++root) {
      const auto transport = make();
      const core::Place place{transport->rank(), transport->size()};
      if (root == place.ranks) {
        break;
      }
      auto values = Brings(place.rank, 1001, root);
      Collective one;
      one.name = "broadcast";
      one.schedule = Shared(core::LinearBroadcast(place, {1001, kBlock}, root));
      one.result = values.data();
      one.sequence = sequence++;
      Engine engine(*transport);
      engine.Begin(one);
      engine.Finish();
      Check(values == Brings(root, 1001, root), "wrong values from root " + std::to_string(root));
    }
  }
}

// More collectives are begun than a transport has room for; nobody waits before the last.
inline void Window(const std::function<std::unique_ptr<Transport>()>& make) {
  const auto transport = make();
  const core::Place place{transport->rank(), transport->size()};
  const auto schedule = Shared(core::Allreduce(core::AllreduceMethod::kRing, place, {5001, kBlock}));
  const auto number = 2 * transport->window() + 1;
  std::vector<std::vector<float>> results;
  Engine engine(*transport);
  for (uint64_t n = 0; n < number; ++n) {
    results.push_back(Brings(place.rank, 5001, static_cast<int32_t>(n)));
  }
  for (uint64_t n = 0; n < number; ++n) {
    Collective one;
    one.name = "window";
    one.schedule = schedule;
    one.result = results[n].data();
    one.bytes = 5001 * 4;
    one.sequence = static_cast<uint32_t>(n);
    engine.Begin(one);
  }
  engine.Finish();
  for (uint64_t n = 0; n < number; ++n) {
    Check(results[n] == Sum(place.ranks, 5001, static_cast<int32_t>(n)), "wrong sum in a window");
  }
}

// The error of each operation, in any order; fails if one of them does not end.
inline std::map<uint64_t, std::string> Ended(Transport& transport, size_t operations) {
  std::map<uint64_t, std::string> errors;
  Completion completion;
  while (errors.size() < operations) {
    Check(transport.Wait(Transport::Clock::now() + kLong, completion), "an operation did not end");
    Check(errors.emplace(completion.operation, completion.error).second, "an operation ended twice");
  }
  Check(!transport.Wait(Transport::Clock::now(), completion), "more operations ended than were begun");
  return errors;
}

}  // namespace transport_checks

#endif  // INTEGRATION_TESTS_RANKS_COLLECTIVES_TRANSPORT_CHECKS_H
