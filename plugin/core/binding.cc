// The Python face of the core; each concept adds its part.

#include <pybind11/pybind11.h>

PYBIND11_MODULE(_core, module) { module.doc() = "Paceline's core algorithms"; }
