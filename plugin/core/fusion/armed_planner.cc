#include "core/fusion/armed_planner.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

#include "core/arguments.h"
#include "core/fusion/armed_states.h"

namespace paceline::core {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Of a start-up: what a message more must bring where time is left. A message costs processor time that the model does
// not have.
constexpr double kLeastGain = 0.1;

// Dynamic programme over the last group, as for plans that are not armed; but a prefix has several states. One that
// ends later may have its second to last message end earlier, and then the next one begins earlier. States differ by
// less than a start-up: whichever ends that much later than the first one is covered by it (Level).
class Search {
 public:
  Search(const std::vector<Gradient>& gradients, const std::vector<int64_t>& order, const ArmedCosts& costs,
         double limit_bytes)
      : gradients_(gradients),
        order_(order),
        costs_(costs),
        negotiated_(costs.message.Plus(costs.coordination_s)),
        startup_s_(costs.message(0)),
        limit_bytes_(limit_bytes),
        prefixes_(order.size() + 1) {}

  Groups Run() {
    GroupCost first(gradients_, negotiated_);
    GroupCost behind(gradients_, costs_.message);
    for (size_t to = 1; to <= order_.size(); ++to) {
      first.Add(order_[to - 1]);
      AddFirst(to, first);
      AddBehind(to, behind);
      // The last message is to end first, however long there is nothing behind it.
      prefixes_[to] = candidates_.Take(to < order_.size() ? ReadyOf(to) : -kNever,
                                       kLeastGain * startup_s_ + kSameEnd * ReadyOf(to));
    }
    return Best();
  }

 private:
  // Counted from the first gradient's readiness, so that times far from 0 do not blur what differs.
  double ReadyOf(size_t place) const {
    return place < order_.size() ? gradients_[order_[place]].ready_s - gradients_[order_[0]].ready_s : kNever;
  }

  // Later ends are covered by the state that ends first: messages before the last one end later than its own, too.
  double CoveredFrom(size_t to) const {
    return (candidates_.first_end_s() + (to < order_.size() ? startup_s_ : 0)) * (1 + kSameEnd);
  }

  // The plan of one group, the first one.
  void AddFirst(size_t to, const GroupCost& group) {
    if (to == 1 || group.bytes() <= limit_bytes_) {
      auto& state = candidates_.next();
      state = {MessageWindow(costs_.together, ReadyOf(to - 1) + group.seconds()), 1, 0, 0};
      state.window.Level(ReadyOf(to), startup_s_);
      candidates_.Keep();
    }
  }

  // Plans whose last group is another one.
  void AddBehind(size_t to, GroupCost& group) {
    const double ready_s = ReadyOf(to - 1);
    group.Clear();
    for (size_t from = to - 1; from > 0; --from) {
      group.Add(order_[from]);
      // A start-up, and the wire of all its messages, which does not shrink as a group grows: nothing better comes
      // after these.
      const double least_end_s = ready_s + group.seconds() - static_cast<double>(group.messages() - 1) * startup_s_;
      if (from + 1 < to && (group.bytes() > limit_bytes_ || least_end_s > CoveredFrom(to))) {
        break;
      }
      const auto& before = prefixes_[from];
      for (size_t n = 0; n < before.size(); ++n) {
        auto& state = candidates_.next();
        state.window = before[n].window;
        state.groups = before[n].groups + 1;
        state.from = from;
        state.before = n;
        group.EachMessage([&](double seconds) { state.window.Send(ready_s, seconds, startup_s_); });
        if (state.window.end_s() <= CoveredFrom(to)) {
          state.window.Level(ReadyOf(to), startup_s_);
          candidates_.Keep();
        }
      }
    }
  }

  Groups Best() const {
    Groups groups;
    size_t number = 0;  // the one that ends first
    for (size_t to = order_.size(); to > 0;) {
      const auto& state = prefixes_[to][number];
      groups.emplace_back(order_.begin() + static_cast<std::ptrdiff_t>(state.from),
                          order_.begin() + static_cast<std::ptrdiff_t>(to));
      to = state.from;
      number = state.before;
    }
    std::reverse(groups.begin(), groups.end());
    return groups;
  }

  const std::vector<Gradient>& gradients_;
  const std::vector<int64_t>& order_;
  const ArmedCosts& costs_;
  const CostModel negotiated_;
  const double startup_s_;
  const double limit_bytes_;
  ArmedCandidates candidates_;
  std::vector<std::vector<ArmedState>> prefixes_;  // by number of gradients
};

}  // namespace

Groups PlanArmed(const std::vector<Gradient>& gradients, const ArmedCosts& costs, double max_group_bytes) {
  ValidateGradients(gradients);
  ValidateArmedCosts(costs);
  const double limit_bytes = RequireNotNegative("max_group_bytes", max_group_bytes);
  const auto order = OrderOfReadiness(gradients);
  return Search(gradients, order, costs, limit_bytes > 0 ? limit_bytes : kNever).Run();
}

}  // namespace paceline::core
