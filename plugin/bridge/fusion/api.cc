// The C entry points of merging, which plugin/fusion/bridge.py calls through ctypes.

#include <cstdint>
#include <string>
#include <vector>

#include "bridge/c_boundary.h"
#include "bridge/fusion/merging.h"
#include "bridge/participants.h"
#include "bridge/waking.h"

using horovod::paceline::Answer;
using horovod::paceline::ControlKind;
using horovod::paceline::Merger;
using horovod::paceline::Merging;

namespace {

Merging& TheMerging() { return horovod::paceline::Get<Merging>(); }

// What the last horovod_paceline_fusion_take took; one caller at a time.
struct Taken {
  std::vector<double> values;
  std::string names;
};

Taken& LastTaken() {
  static auto* taken = new Taken;
  return *taken;
}

// What can be taken; plugin/fusion/bridge.py has the same numbers.
enum class What : int32_t { kStatus = 0, kAgreement = 1, kPlan = 2, kMeasurement = 3, kOwn = 4 };

template <typename T>
void Append(std::vector<double>& values, const std::vector<T>& more) {
  values.push_back(static_cast<double>(more.size()));
  values.insert(values.end(), more.begin(), more.end());
}

void AppendTensors(Taken& taken, const std::vector<paceline::core::ReducedTensor>& tensors) {
  taken.values.push_back(static_cast<double>(tensors.size()));
  for (const auto& tensor : tensors) {
    taken.values.push_back(static_cast<double>(tensor.bytes));
    taken.values.push_back(tensor.type);
    taken.names.append(tensor.name).push_back('\0');
  }
}

void AppendBytes(std::vector<double>& values, const std::vector<paceline::core::Message>& messages) {
  values.push_back(static_cast<double>(messages.size()));
  for (const auto& message : messages) {
    values.push_back(static_cast<double>(message.bytes));
  }
}

void AppendOwn(std::vector<double>& values, const paceline::core::Measured& own) {
  values.insert(values.end(), {static_cast<double>(own.steps), own.step_s, own.exposed_s, own.coordination_s});
}

void Take(const Merger& merger, What what, Taken& taken) {
  auto& values = taken.values;
  switch (what) {
    case What::kStatus: {
      const auto agreement = merger.agreement();
      values = {static_cast<double>(merger.rank()),
                static_cast<double>(merger.size()),
                agreement.complete ? 1.0 : 0.0,
                agreement.plans ? 1.0 : 0.0,
                static_cast<double>(merger.monitor().steps()),
                static_cast<double>(merger.plan().version),
                static_cast<double>(merger.expired()),
                merger.threshold_bytes(),
                merger.cycle_s(),
                static_cast<double>(merger.serial()),
                agreement.armed && merger.process_set_id() == 0 ? 1.0 : 0.0};
      break;
    }
    case What::kAgreement:
      Append(values, merger.agreement().asked);
      break;
    case What::kPlan: {
      const auto plan = merger.plan();
      values = {static_cast<double>(plan.version), plan.active ? 1.0 : 0.0};
      Append(values, plan.expected);
      Append(values, plan.group_of);
      Append(values, plan.parts_of);
      AppendTensors(taken, merger.monitor().tensors());
      break;
    }
    case What::kMeasurement: {
      const Answer answer = merger.answer(ControlKind::kMeasure);
      values = {static_cast<double>(answer.number), answer.error.empty() ? 1.0 : 0.0};
      Append(values, answer.values);
      AppendTensors(taken, answer.tensors);
      for (const auto& sweeps : answer.sweeps) {
        AppendBytes(values, sweeps);
      }
      AppendBytes(values, answer.messages);
      break;
    }
    case What::kOwn:
      AppendOwn(values, merger.monitor().Measure());
      break;
  }
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
  horovod::paceline::TellHandedIn();
  return number;
}
PACELINE_CATCH(-1)

// Takes a picture of something and returns its number of values, or -1 if there is no such process set; *names_bytes
// is the length of the names that belong to it.
int64_t horovod_paceline_fusion_take(int32_t process_set, int32_t what, int64_t* names_bytes) try {
  auto& taken = LastTaken();
  taken = {};
  const auto merger = TheMerging().Find(process_set);
  if (merger == nullptr) {
    return -1;
  }
  Take(*merger, static_cast<What>(what), taken);
  *names_bytes = static_cast<int64_t>(taken.names.size());
  return static_cast<int64_t>(taken.values.size());
}
PACELINE_CATCH(-1)

const double* horovod_paceline_fusion_values() try { return LastTaken().values.data(); }
PACELINE_CATCH(nullptr)
const char* horovod_paceline_fusion_names() try { return LastTaken().names.data(); }
PACELINE_CATCH(nullptr)
}
