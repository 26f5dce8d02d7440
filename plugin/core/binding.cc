// The Python face of the core: conversions only.

#include "core/binding.h"

#include <pybind11/pybind11.h>

PYBIND11_MODULE(_core, module) {
  module.doc() = "Paceline's core algorithms";

  paceline::core::BindPlanner(module);
}
