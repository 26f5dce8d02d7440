// The Python face of the core: conversions only.

#include "core/binding.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "core/automatic_names.h"
#include "core/record/recorder.h"

namespace py = pybind11;
using paceline::core::AutomaticNames;
using paceline::core::CollectiveKind;
using paceline::core::Recorder;

PYBIND11_MODULE(_core, module) {
  module.doc() = "Paceline's core algorithms";

  py::class_<Recorder>(module, "Recorder")
      .def(py::init<>())
      .def("start", &Recorder::Start, py::arg("keep_steps"), py::arg("now_ns"))
      .def("stop", &Recorder::Stop)
      .def(
          "arrived",
          [](Recorder& self, std::string name, int64_t bytes, int32_t dtype, int32_t process_set, int64_t now_ns) {
            self.Arrived({std::move(name), bytes, dtype, process_set}, now_ns);
          },
          py::arg("name"), py::arg("bytes"), py::arg("dtype"), py::arg("process_set"), py::arg("now_ns"))
      .def(
          "performed",
          [](Recorder& self, int32_t kind, const std::vector<std::string>& names, int64_t bytes, int64_t start_ns,
             int64_t end_ns) { self.Performed(static_cast<CollectiveKind>(kind), names, bytes, start_ns, end_ns); },
          py::arg("kind"), py::arg("names"), py::arg("bytes"), py::arg("start_ns"), py::arg("end_ns"))
      .def("coordinated", &Recorder::Coordinated)
      .def("snapshot", [](const Recorder& self) {
        auto snapshot = self.TakeSnapshot();
        return py::make_tuple(snapshot.words, py::bytes(snapshot.names));
      });

  py::class_<AutomaticNames>(module, "AutomaticNames")
      .def(py::init<>())
      .def("next", &AutomaticNames::Next, py::arg("kind"), py::arg("process_set_id") = 0)
      .def("meet", &AutomaticNames::Meet, py::arg("process_set_id") = 0)
      .def("reset", &AutomaticNames::Reset);

  paceline::core::BindPlanner(module);
}
