// The planner in Python: conversions only.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/binding.h"
#include "core/fusion/armed_messages.h"
#include "core/fusion/armed_planner.h"
#include "core/fusion/collective_cost.h"
#include "core/fusion/cost_fit.h"
#include "core/fusion/cost_model.h"
#include "core/fusion/merge_groups.h"
#include "core/fusion/planner.h"
#include "core/fusion/prediction.h"

namespace py = pybind11;

namespace paceline::core {

namespace {

using Pairs = std::vector<std::pair<double, double>>;

std::vector<CostPoint> PointsOf(const Pairs& pairs) {
  std::vector<CostPoint> points;
  points.reserve(pairs.size());
  for (const auto& [bytes, seconds] : pairs) {
    points.push_back({bytes, seconds});
  }
  return points;
}

Pairs PairsOf(const std::vector<CostPoint>& points) {
  Pairs pairs;
  pairs.reserve(points.size());
  for (const auto& point : points) {
    pairs.emplace_back(point.bytes, point.seconds);
  }
  return pairs;
}

std::pair<double, double> PairOf(const LinearCost& line) { return {line.a_s, line.b_s_per_byte}; }

std::vector<Gradient> GradientsOf(const std::vector<double>& bytes, const std::vector<double>& ready_s,
                                  const std::vector<int32_t>& types) {
  if (ready_s.size() != bytes.size() || types.size() != bytes.size()) {
    throw std::invalid_argument("there are " + std::to_string(bytes.size()) + " sizes, " +
                                std::to_string(ready_s.size()) + " times of readiness and " +
                                std::to_string(types.size()) + " types; each tensor has one of each");
  }
  std::vector<Gradient> gradients;
  gradients.reserve(bytes.size());
  for (size_t n = 0; n < bytes.size(); ++n) {
    gradients.push_back({bytes[n], ready_s[n], types[n]});
  }
  return gradients;
}

void BindCosts(py::module_& module) {
  py::class_<CostModel>(module, "CostModel")
      .def_static("linear", &CostModel::Linear, py::arg("a_s"), py::arg("b_s_per_byte"))
      .def_static(
          "measured", [](const Pairs& points) { return CostModel::Measured(PointsOf(points)); }, py::arg("points"))
      .def("__call__", &CostModel::operator(), py::arg("bytes"))
      .def("plus", &CostModel::Plus, py::arg("seconds"))
      .def_property_readonly("a_s", [](const CostModel& self) { return self.linear().a_s; })
      .def_property_readonly("b_s_per_byte", [](const CostModel& self) { return self.linear().b_s_per_byte; })
      .def_property_readonly("points", [](const CostModel& self) { return PairsOf(self.points()); });
  module.def(
      "fit_linear", [](const Pairs& samples) { return PairOf(FitLinear(PointsOf(samples))); }, py::arg("samples"));
  module.def("fit_measured", [](const Pairs& samples) { return FitMeasured(PointsOf(samples)); }, py::arg("samples"));
  module.def(
      "allreduce_cost",
      [](const std::string& algorithm, int64_t n, double alpha, double beta, double gamma) {
        return PairOf(AllreduceCost(AllreduceAlgorithmOf(algorithm), n, alpha, beta, gamma));
      },
      py::arg("algorithm"), py::arg("n"), py::arg("alpha"), py::arg("beta"), py::arg("gamma"));
}

}  // namespace

void BindPlanner(py::module_& module) {
  BindCosts(module);
  py::class_<Prediction>(module, "Prediction")
      .def_readonly("starts_s", &Prediction::starts_s)
      .def_readonly("ends_s", &Prediction::ends_s)
      .def_readonly("finish_s", &Prediction::finish_s)
      .def_readonly("exposed_s", &Prediction::exposed_s);
  // Planning for many tensors takes long enough for other threads to notice.
  module.def(
      "plan",
      [](const std::string& policy, const std::vector<double>& bytes, const std::vector<double>& ready_s,
         const std::vector<int32_t>& types, const CostModel& costs, double threshold_bytes, double max_group_bytes) {
        return Plan(PolicyOf(policy), GradientsOf(bytes, ready_s, types), costs, {threshold_bytes, max_group_bytes});
      },
      py::arg("policy"), py::arg("bytes"), py::arg("ready_s"), py::arg("types"), py::arg("costs"),
      py::arg("threshold_bytes") = 0.0, py::arg("max_group_bytes") = 0.0, py::call_guard<py::gil_scoped_release>());
  module.def(
      "predict",
      [](const Groups& groups, const std::vector<double>& bytes, const std::vector<double>& ready_s,
         const std::vector<int32_t>& types,
         const CostModel& costs) { return Predict(GradientsOf(bytes, ready_s, types), groups, costs); },
      py::arg("groups"), py::arg("bytes"), py::arg("ready_s"), py::arg("types"), py::arg("costs"));
  module.def(
      "plan_armed",
      [](const std::vector<double>& bytes, const std::vector<double>& ready_s, const std::vector<int32_t>& types,
         const CostModel& costs, double coordination_s, int64_t together, double max_group_bytes, double work_s) {
        return PlanArmed(GradientsOf(bytes, ready_s, types), {costs, coordination_s, together, work_s},
                         max_group_bytes);
      },
      py::arg("bytes"), py::arg("ready_s"), py::arg("types"), py::arg("costs"), py::arg("coordination_s"),
      py::arg("together"), py::arg("max_group_bytes") = 0.0, py::arg("work_s") = 0.0,
      py::call_guard<py::gil_scoped_release>());
  module.def(
      "predict_armed",
      [](const Groups& groups, const std::vector<double>& bytes, const std::vector<double>& ready_s,
         const std::vector<int32_t>& types, const CostModel& costs, double coordination_s, int64_t together,
         double work_s) {
        return PredictArmed(GradientsOf(bytes, ready_s, types), groups, {costs, coordination_s, together, work_s});
      },
      py::arg("groups"), py::arg("bytes"), py::arg("ready_s"), py::arg("types"), py::arg("costs"),
      py::arg("coordination_s"), py::arg("together"), py::arg("work_s") = 0.0);
  module.def(
      "predict_stock",
      [](const std::vector<double>& bytes, const std::vector<double>& ready_s, const std::vector<int32_t>& types,
         const CostModel& costs, double coordination_s, double cycle_s, double threshold_bytes) {
        auto stock =
            PredictStock(GradientsOf(bytes, ready_s, types), costs, {coordination_s, cycle_s, threshold_bytes});
        return std::pair(std::move(stock.groups), std::move(stock.prediction));
      },
      py::arg("bytes"), py::arg("ready_s"), py::arg("types"), py::arg("costs"), py::arg("coordination_s"),
      py::arg("cycle_s"), py::arg("threshold_bytes"));
  module.def("validate_groups", &ValidateGroups, py::arg("groups"), py::arg("n"));
}

}  // namespace paceline::core
