// The Python face of the core: conversions only.

#include "core/binding.h"

#include <pybind11/pybind11.h>

#include "core/armed/armed_step.h"
#include "core/interface.h"
#include "core/pipelined/slots.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "Paceline's core algorithms";

  module.attr("INTERFACE") = paceline::core::kInterface;
  module.attr("MOST_K") = paceline::core::kMostK;
  module.attr("TOGETHER") = paceline::core::kTogether;
  paceline::core::BindPlanner(module);
  paceline::core::BindCollectives(module);
}
