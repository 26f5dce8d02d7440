// Times of collectives in Python: conversions only.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <utility>

#include "core/binding.h"
#include "core/collectives/collective_time.h"

namespace py = pybind11;

namespace paceline::core {

namespace {

// Blocks in flight, as in BlockedBytes.
constexpr int32_t kAhead = 8;

}  // namespace

void BindCollectives(py::module_& module) {
  module.def(
      "fastest_allreduce",
      [](int32_t ranks, double bytes, double alpha_s, double message_s, double beta_s_per_byte,
         double gamma_s_per_byte) {
        const auto choice =
            FastestAllreduce({alpha_s, message_s, beta_s_per_byte, gamma_s_per_byte}, ranks, bytes, kAhead);
        return std::pair(static_cast<int32_t>(choice.method), choice.seconds);
      },
      py::arg("ranks"), py::arg("bytes"), py::arg("alpha_s"), py::arg("message_s"), py::arg("beta_s_per_byte"),
      py::arg("gamma_s_per_byte"));
  module.def(
      "allreduce_time",
      [](int32_t method, int32_t ranks, double bytes, double alpha_s, double message_s, double beta_s_per_byte,
         double gamma_s_per_byte) {
        return BestAllreduce(static_cast<AllreduceMethod>(method),
                             {alpha_s, message_s, beta_s_per_byte, gamma_s_per_byte}, ranks, bytes, kAhead)
            .seconds;
      },
      py::arg("method"), py::arg("ranks"), py::arg("bytes"), py::arg("alpha_s"), py::arg("message_s"),
      py::arg("beta_s_per_byte"), py::arg("gamma_s_per_byte"));
}

}  // namespace paceline::core
