#include <string>

#include "core/coordination/set_changes.h"
#include "doctest/doctest.h"
#include "events.h"

namespace {

using paceline::core::SetChanges;

constexpr int64_t kSecond_ns = 1'000'000'000;
constexpr int32_t kNone = -1;     // as Horovod tells before a removal
constexpr int32_t kRemoved = -2;  // and after one

// Three ranks; times are in s. Warnings every 60 s, an error after 150 s.
struct Machine : events::Machine {
  explicit Machine(SetChanges::Limits limits = {60 * kSecond_ns, 150 * kSecond_ns}) : changes(limits) {
    On("same", [this](int64_t s) { return Round({{1, kNone}, {1, kRemoved}, {1, kNone}}, s); });
    On("add", [this](int64_t s) { return Round({{2, kNone}, {1, kNone}, {2, kNone}}, s); });
    On("remove", [this](int64_t s) { return Round({{3, 1}, {3, kNone}, {3, 2}}, s); });
  }

  std::string Round(const std::vector<SetChanges::OfRank>& ranks, int64_t s) {
    const auto report = changes.Follow(ranks, s * kSecond_ns);
    text = report ? report->text : "";
    return !report ? "" : report->error ? "error" : "warning";
  }

  SetChanges changes;
  std::string text;
};

TEST_CASE("Ranks that wait for a change of process sets are reported after the limits") {
  Machine().Play("same0 add1 add60 same61 add62 add121 remove122:warning");
  Machine().Play("add1 add61:warning add120 add121:warning add150 add151:error");
  Machine({60 * kSecond_ns, 0}).Play("add0 add60:warning add600:warning add659 add660:warning");
  Machine({0, 0}).Play("add0 add600 remove6000");
}

TEST_CASE("A report names the calls and the ranks") {
  Machine machine;
  machine.Play("add5 add65:warning");
  CHECK(machine.text ==
        "Ranks wait for others to change process sets, for 60 s now. hvd.add_process_set() was called by ranks [0, 2], "
        "not by ranks [1]. Make the same calls on all ranks, also on those that are not in the process set.");
  machine.Play("remove125:warning");
  CHECK(machine.text ==
        "Ranks wait for others to change process sets, for 120 s now. hvd.remove_process_set() was called by ranks [0] "
        "for process set 1, by ranks [2] for process set 2, not by ranks [1]. Make the same calls on all ranks, also "
        "on those that are not in the process set.");
}

}  // namespace
