// The C entry points of merging, which plugin/fusion/bridge.py calls through ctypes.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bridge/c_boundary.h"
#include "bridge/fusion/merging.h"
#include "bridge/json_text.h"
#include "bridge/participants.h"
#include "bridge/waking.h"

using horovod::paceline::Answer;
using horovod::paceline::ControlKind;
using horovod::paceline::Merger;
using horovod::paceline::Merging;
using paceline::core::Json;

namespace {

Merging& TheMerging() { return horovod::paceline::Get<Merging>(); }

using Tensor = std::pair<std::string, std::pair<int64_t, int32_t>>;
using Sample = std::pair<int64_t, double>;

// Name, and bytes and type.
std::vector<Tensor> Tensors(const std::vector<paceline::core::ReducedTensor>& tensors, size_t most) {
  std::vector<Tensor> found;
  for (size_t n = 0; n < std::min(tensors.size(), most); ++n) {
    found.push_back({tensors[n].name, {tensors[n].bytes, tensors[n].type}});
  }
  return found;
}

// Bytes and seconds, where a rate, the inverse of seconds, is known.
std::vector<Sample> Samples(const std::vector<paceline::core::Message>& messages, const double* rates, size_t count) {
  std::vector<Sample> found;
  for (size_t n = 0; n < std::min(messages.size(), count); ++n) {
    if (rates[n] > 0) {
      found.emplace_back(messages[n].bytes, 1 / rates[n]);
    }
  }
  return found;
}

double Inverse(double value) { return value != 0 ? 1 / value : 0; }

// The layout is that of Merger::OwnMeasurement. A tensor that came after the question was put has no place in the
// answer.
void PutMeasured(const Answer& answer, Json& json) {
  constexpr size_t kSweeps = Merger::kSweeps, kMessages = paceline::core::Monitor::kMessages;
  const auto& values = answer.values;
  const size_t tensors = values.size() - Merger::kMeasureHeader - Merger::kAllSweeps - kMessages;
  std::vector<double> ready_s(values.begin() + Merger::kMeasureHeader,
                              values.begin() + Merger::kMeasureHeader + static_cast<int64_t>(tensors));
  for (auto& one : ready_s) {
    one = one >= Merger::kIrregular ? std::numeric_limits<double>::quiet_NaN() : one;
  }
  const double* rates = values.data() + Merger::kMeasureHeader + tensors;
  json.Put("steps", static_cast<int64_t>(std::lround(Inverse(values[0]))))  // 0: all ranks have joined
      .Put("compute_s", values[1])
      .Put("coordination_s", Inverse(values[2]))
      .Put("tensors", Tensors(answer.tensors, tensors))
      .Put("ready_s", ready_s)
      .Put("sweeps", Samples(answer.sweeps[0], rates, kSweeps))
      .Put("fast_sweeps", Samples(answer.sweeps[1], rates + kSweeps, kSweeps))
      .Put("burst", Samples(answer.sweeps[2], rates + 2 * kSweeps, kSweeps))
      .Put("messages", Samples(answer.messages, rates + 3 * kSweeps, kMessages));
}

// What `fill` puts of a merger, or null if there is no such process set.
template <typename Fill>
const char* Of(int32_t process_set, const Fill& fill) {
  const auto merger = TheMerging().Find(process_set);
  if (merger == nullptr) {
    return nullptr;
  }
  Json json;
  fill(*merger, json);
  return horovod::paceline::JsonText(json);
}

}  // namespace

extern "C" {

// The policy that this process wants; 0 for Horovod's own merging. May be called at any time, before init(), too.
void horovod_paceline_fusion_want(double policy) try { TheMerging().Want(policy); }
PACELINE_CATCH()

// Whether this process wants armed steps. As above.
void horovod_paceline_fusion_want_armed(int32_t armed) try { TheMerging().WantArmed(armed != 0); }
PACELINE_CATCH()

// The ids of process sets that this rank is in: at most `capacity` are written; returns how many there are.
int32_t horovod_paceline_fusion_sets(int32_t* ids, int32_t capacity) try {
  const auto all = TheMerging().Ids();
  for (int32_t n = 0; n < capacity && n < static_cast<int32_t>(all.size()); ++n) {
    ids[n] = all[static_cast<size_t>(n)];
  }
  return static_cast<int32_t>(all.size());
}
PACELINE_CATCH(-1)

// Asks for a control operation of the given kind in a process set; returns its number, or -1 if there is no such set.
int64_t horovod_paceline_fusion_ask(int32_t process_set, int32_t kind, const double* values, int64_t count) try {
  const auto merger = TheMerging().Find(process_set);
  if (merger == nullptr) {
    return -1;
  }
  const auto number = merger->Ask(static_cast<ControlKind>(kind), std::vector<double>(values, values + count));
  horovod::paceline::NotifyWorkSubmitted();
  return number;
}
PACELINE_CATCH(-1)

// What follows is null if there is no such process set (any more); the fields are those of the class in
// plugin/fusion/bridge.py that has the entry's name.
const char* horovod_paceline_fusion_status(int32_t process_set) try {
  return Of(process_set, [](const Merger& merger, Json& json) {
    const auto agreement = merger.agreement();
    json.Put("rank", merger.rank())
        .Put("size", merger.size())
        .Put("agreed", agreement.complete)
        .Put("plans", agreement.plans)
        .Put("steps", merger.monitor().steps())
        .Put("version", merger.plan().version)
        .Put("expired", merger.expired())
        .Put("threshold_bytes", static_cast<int64_t>(merger.threshold_bytes()))
        .Put("cycle_s", merger.cycle_s())
        .Put("serial", merger.serial())
        .Put("armed", agreement.armed && merger.process_set_id() == 0);
  });
}
PACELINE_CATCH(nullptr)

// "asked": the digest of the policy that each rank asked for, null where it has not been heard.
const char* horovod_paceline_fusion_agreement(int32_t process_set) try {
  return Of(process_set, [](const Merger& merger, Json& json) {
    std::vector<double> asked;
    for (const double one : merger.agreement().asked) {
      asked.push_back(one == 0 ? std::numeric_limits<double>::quiet_NaN() : one - 1);
    }
    json.Put("asked", asked);
  });
}
PACELINE_CATCH(nullptr)

const char* horovod_paceline_fusion_own(int32_t process_set) try {
  return Of(process_set, [](const Merger& merger, Json& json) {
    const auto own = merger.monitor().Measure();
    json.Put("steps", own.steps)
        .Put("step_s", own.step_s)
        .Put("exposed_s", own.exposed_s)
        .Put("coordination_s", own.coordination_s);
  });
}
PACELINE_CATCH(nullptr)

const char* horovod_paceline_fusion_plan(int32_t process_set) try {
  return Of(process_set, [](const Merger& merger, Json& json) {
    const auto plan = merger.plan();
    const auto tensors = merger.monitor().tensors();
    json.Put("version", plan.version)
        .Put("active", plan.active)
        .Put("expected", std::vector<double>(plan.expected.begin(), plan.expected.end()))
        .Put("group_of", plan.group_of)
        .Put("parts_of", plan.parts_of)
        .Put("tensors", Tensors(tensors, tensors.size()));
  });
}
PACELINE_CATCH(nullptr)

// The last measurement: its "number", "failed", and what was measured if it did not fail.
const char* horovod_paceline_fusion_measurement(int32_t process_set) try {
  return Of(process_set, [](const Merger& merger, Json& json) {
    const Answer answer = merger.answer(ControlKind::kMeasure);
    json.Put("number", answer.number).Put("failed", !answer.error.empty());
    if (answer.error.empty() && !answer.values.empty()) {
      PutMeasured(answer, json);
    }
  });
}
PACELINE_CATCH(nullptr)
}
