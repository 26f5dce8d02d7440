// What is handed in for an armed step, and which of it need not begin a round.

#include <string>

#include "core/armed/awaited.h"
#include "doctest/doctest.h"
#include "events.h"

using paceline::core::Awaited;
using paceline::core::Need;

namespace {

// The result of a name is what its tensor begins: a round, nothing, or nothing before the others of the first group.
struct Machine : events::Machine {
  Machine() {
    On("plan", [this] { awaited.Expect({"a", "b", "c"}, {"d", "e"}); });  // the first group, and others
    On("other_plan", [this] { awaited.Expect({"d"}, {"a"}); });
    On("begin", [this] { awaited.Begin(); });
    On("stop", [this] { awaited.Stop(); });
  }
  std::string Happen(const std::string& event) override {
    if (Known(event)) {
      return events::Machine::Happen(event);
    }
    const Need need = awaited.Of(event);
    return need == Need::kRound ? "round" : need == Need::kOthers ? "others" : "none";
  }

  Awaited awaited;
};

constexpr events::Case kCases[] = {
    {"the last tensor of the first group begins the round, whatever the order",
     "plan begin b:others d:others c:others a:round e:none begin b:others d:others c:others a:round e:none "
     "begin b:others d:others c:others a:round e:none"},
    {"another operation is not held", "plan begin a:others loss:round b:others c:round"},
    {"nothing is held before the first step, and after one that may have begun",
     "a:round plan a:round begin a:others stop b:round d:round begin b:others"},
    {"a tensor that comes again ends the counting: steps are not what they were",
     "plan begin a:others a:round b:round d:round"},
    {"another plan's tensors take the place of the last one's",
     "plan begin other_plan a:round begin a:others d:round b:round"},
};

}  // namespace

TEST_CASE("tensors of armed steps") { events::PlayAll<Machine>(kCases); }
