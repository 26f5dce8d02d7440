// The parts of the Python face, one for each binding_*.cc.

#ifndef PACELINE_CORE_BINDING_H
#define PACELINE_CORE_BINDING_H

#include <pybind11/pybind11.h>

namespace paceline::core {

// Cost models, policies and predictions.
void BindPlanner(pybind11::module_& module);
// Predicted times of Paceline's collectives.
void BindCollectives(pybind11::module_& module);

}  // namespace paceline::core

#endif  // PACELINE_CORE_BINDING_H
