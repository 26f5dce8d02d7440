#include "core/fusion/armed_planner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "core/arguments.h"
#include "core/fusion/armed_states.h"
#include "core/fusion/prediction.h"

namespace paceline::core {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Of a start-up, what a group more must bring.
constexpr double kLeastGain = 0.1;
// How many times what was measured start-ups, and bytes, may take: plans are sought for each of the latter, and judged
// by all.
constexpr double kStartups = 2;
constexpr std::array<double, 3> kWires = {1, 1.25, 1.5};
// Of a message. It is packed before it is sent, added up and unpacked after: several may do so beside each other's
// wire, one cannot. 3 messages of ResNet-50 took longer than 7, and these longer than 14.
constexpr double kLargestMessage_bytes = 8U << 20U;
// States of a prefix, when a good plan is sought and when the best one is. Few prefixes have hundreds, which are all
// but the same then.
constexpr size_t kFew = 2, kMany = 32;

double PriceOfGroup(const ArmedCosts& costs) { return kLeastGain * std::max(costs.message(0), costs.work_s); }

// Dynamic programme over the number of groups and over the last one; but a prefix has several states. One that ends
// later may have its second to last message end earlier, and then the next one begins earlier. States differ by less
// than a start-up: whichever ends that much later than the first one is covered by it (Level). With more groups no plan
// is better once they cost more than an end as early as can be would bring.
class Search {
 public:
  // At most `most` states of a prefix are kept, those that end first. Nothing is sought that is not better than
  // `best_s`.
  Search(const std::vector<Gradient>& gradients, const std::vector<int64_t>& order, const ArmedCosts& costs,
         double limit_bytes, double part_bytes, size_t most, double best_s)
      : gradients_(gradients),
        order_(order),
        costs_(costs),
        negotiated_(costs.message.Plus(costs.coordination_s)),
        startup_s_(costs.startup_s()),
        price_s_(PriceOfGroup(costs)),
        limit_bytes_(limit_bytes),
        part_bytes_(part_bytes),
        most_(most),
        rest_s_(order.size() + 1),
        best_s_(best_s) {
    // A line has the same wire for all messages of these bytes.
    for (size_t place = costs.message.points().empty() ? order.size() : 0; place > 0; --place) {
      rest_s_[place - 1] = rest_s_[place] + (costs.message(gradients[order[place - 1]].bytes) - costs.message(0));
    }
  }

  // The worth of the plan that was found.
  double best_s() const { return best_s_; }

  // No groups: there is nothing better than what was to be beaten.
  Groups Run() {
    // No plan of several groups ends before its last gradient has been sent alone.
    const double least_end_s = order_.empty() ? 0 : ReadyOf(order_.size() - 1) + costs_.message(0);
    for (size_t count = 1; count <= order_.size(); ++count) {
      if (count > 1 && least_end_s + static_cast<double>(count) * price_s_ >= best_s_) {
        break;
      }
      layers_.emplace_back(order_.size() + 1);
      count == 1 ? FillFirst() : Fill(count);
      const auto& whole = layers_.back()[order_.size()];
      if (whole.empty()) {
        continue;
      }
      const double worth_s = Worth(whole[0], count);
      if (best_s_ == kNever || worth_s < best_s_ - kSameEnd * std::abs(best_s_)) {
        best_s_ = worth_s;
        best_count_ = count;
      }
    }
    return Best();
  }

 private:
  // Counted from the first gradient's readiness, so that times far from 0 do not blur what differs.
  double ReadyOf(size_t place) const {
    return place < order_.size() ? gradients_[order_[place]].ready_s - gradients_[order_[0]].ready_s : kNever;
  }

  double Worth(const ArmedState& state, size_t count) const {
    return state.window.end_s() + static_cast<double>(count) * price_s_;
  }

  // Later ends are covered by the state that ends first: messages before the last one end later than its own, too. And
  // no plan that has this end, the wire of what follows and a group for that is better than the best so far.
  double CoveredFrom(size_t to, size_t count) const {
    const double covered_s = candidates_.first_end_s() + (to < order_.size() ? std::max(startup_s_, 0.0) : 0);
    const auto least_count = static_cast<double>(to < order_.size() ? count + 1 : count);
    return std::min(covered_s * (1 + kSameEnd), best_s_ - least_count * price_s_ - rest_s_[to]);
  }

  // Nothing that ends by then delays what follows. The last message is to end first, however long there is nothing
  // behind it.
  void Take(size_t to) {
    layers_.back()[to] = candidates_.Take(to < order_.size() ? ReadyOf(to) + std::min(startup_s_, 0.0) : -kNever);
    auto& kept = layers_.back()[to];
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(std::min(kept.size(), most_)), kept.end());
  }

  // Plans of one group, the first one.
  void FillFirst() {
    GroupCost group(gradients_, negotiated_);
    for (size_t to = 1; to <= order_.size(); ++to) {
      group.Add(order_[to - 1]);
      if (to == 1 || group.bytes() <= limit_bytes_) {
        auto& state = candidates_.next();
        const double ready_s = ReadyOf(to - 1);
        state = {MessageWindow(costs_.together, ready_s + costs_.coordination_s, ready_s + group.seconds()), 0, 0};
        state.window.Level(ReadyOf(to), startup_s_);
        candidates_.Keep();
      }
      Take(to);
    }
  }

  // Plans of so many groups, two or more, from those of one group less.
  void Fill(size_t count) {
    GroupCost group(gradients_, costs_.message);
    for (size_t to = count; to <= order_.size(); ++to) {
      AddLast(to, count, group);
      Take(to);
    }
  }

  void AddLast(size_t to, size_t count, GroupCost& group) {
    const auto& shorter = layers_[count - 2];
    const double ready_s = ReadyOf(to - 1);
    group.Clear();
    for (size_t from = to - 1; from + 1 >= count; --from) {
      group.Add(order_[from]);
      // A start-up, and the wire of all its messages, which does not shrink as a group grows: nothing better comes
      // after these.
      const double least_end_s = ready_s + group.seconds() - static_cast<double>(group.messages() - 1) * startup_s_;
      if (from + 1 < to && (group.bytes() > limit_bytes_ || least_end_s > CoveredFrom(to, count))) {
        break;
      }
      const auto parts = from + 1 < to ? 1 : PartsOf(group.bytes(), part_bytes_);
      for (size_t n = 0; n < shorter[from].size(); ++n) {
        auto& state = candidates_.next();
        state.window = shorter[from][n].window;
        state.from = from;
        state.before = n;
        for (size_t part = 0; part < parts; ++part) {
          group.EachMessage(static_cast<double>(parts),
                            [&](double seconds) { state.window.Send(ready_s, seconds, startup_s_); });
        }
        if (state.window.end_s() <= CoveredFrom(to, count)) {
          state.window.Level(ReadyOf(to), startup_s_);
          candidates_.Keep();
        }
      }
    }
  }

  Groups Best() const {
    Groups groups;
    size_t number = 0;  // the one that ends first
    size_t to = order_.size();
    for (size_t count = best_count_; count > 0; --count) {
      const auto& state = layers_[count - 1][to][number];
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
  const double startup_s_, price_s_;
  const double limit_bytes_, part_bytes_;
  ArmedCandidates candidates_;
  std::vector<std::vector<std::vector<ArmedState>>> layers_;  // by number of groups less one, and of gradients
  const size_t most_;
  std::vector<double> rest_s_;  // the wire of the gradients from here on, or 0
  double best_s_;
  size_t best_count_ = 0;
};

}  // namespace

ArmedCosts WithHeadroom(const ArmedCosts& costs, double wire) {
  auto more = costs;
  more.message = costs.message.Times(kStartups, wire);
  more.work_s *= kStartups;
  return more;
}

double WorthOf(const std::vector<Gradient>& gradients, const Groups& groups, const ArmedCosts& costs) {
  double sum_s = 0;
  for (const double wire : kWires) {
    const auto judged = WithHeadroom(costs, wire);
    sum_s += PredictArmed(gradients, groups, judged).finish_s +
             static_cast<double>(Whole(groups).size()) * PriceOfGroup(judged);
  }
  return sum_s / static_cast<double>(kWires.size());
}

Groups EarliestArmed(const std::vector<Gradient>& gradients, const ArmedCosts& costs, double max_group_bytes,
                     double part_bytes) {
  ValidateGradients(gradients);
  ValidateArmedCosts(costs);
  const double limit_bytes = RequireNotNegative("max_group_bytes", max_group_bytes);
  RequireNotNegative("part_bytes", part_bytes);
  const auto order = OrderOfReadiness(gradients);
  // A plan that is good or the best, to know what need not be looked at when the best one is sought.
  const auto search = [&](size_t most, double best_s) {
    return Search(gradients, order, costs, limit_bytes > 0 ? limit_bytes : kNever, part_bytes, most, best_s);
  };
  auto first = search(kFew, kNever);
  auto good = first.Run();
  auto best = search(kMany, first.best_s()).Run();
  return InParts(best.empty() ? good : best, gradients, part_bytes);
}

Groups PlanArmed(const std::vector<Gradient>& gradients, const ArmedCosts& costs, double max_group_bytes) {
  const double limit_bytes = RequireNotNegative("max_group_bytes", max_group_bytes) > 0
                                 ? std::min(max_group_bytes, kLargestMessage_bytes)
                                 : kLargestMessage_bytes;
  Groups best;
  double best_s = kNever;
  for (const double wire : kWires) {
    auto groups = EarliestArmed(gradients, WithHeadroom(costs, wire), limit_bytes, kLargestMessage_bytes);
    const double worth_s = WorthOf(gradients, groups, costs);
    if (best.empty() || worth_s < best_s - kSameEnd * std::abs(best_s)) {
      best = std::move(groups);
      best_s = worth_s;
    }
  }
  return best;
}

}  // namespace paceline::core
