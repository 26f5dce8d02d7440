// A search of all orders in which the events of a small model can happen.

#ifndef PACELINE_UNIT_SEARCH_H
#define PACELINE_UNIT_SEARCH_H

#include <cstddef>
#include <string>
#include <unordered_set>

// A fault found by a model, in words.
struct Fault {
  std::string what;
};

struct Found {
  std::unordered_set<std::string> visited;
  std::size_t ends = 0;      // states without a next step
  std::string fault, steps;  // the first one, or empty; and the steps that led to it
};

template <typename Model, typename AtEnd>
void Visit(const Model& model, const AtEnd& at_end, Found& found) {
  if (!found.visited.insert(model.Key()).second) {
    return;
  }
  const auto enabled = model.Enabled();
  if (enabled.empty()) {
    ++found.ends;
    model.CheckFinal();
    at_end(model);
  }
  for (const auto& step : enabled) {
    const auto length = found.steps.size();
    found.steps += Model::Text(step) + " ";
    auto next = model;
    next.Do(step);
    Visit(next, at_end, found);
    found.steps.resize(length);
  }
}

// A model has Enabled(), the steps that may come next; Do(step); CheckFinal(), for states without a next step, in which
// at_end(model) is called; Key(), all that decides about the future; and Text(step). Do and CheckFinal throw a Fault.
template <typename Model, typename AtEnd>
Found Explore(const Model& model, const AtEnd& at_end) {
  Found found;
  try {
    Visit(model, at_end, found);
  } catch (const Fault& fault) {
    found.fault = fault.what;
  }
  return found;
}

#endif  // PACELINE_UNIT_SEARCH_H
