"""hvd.metrics(): numbers of this rank, by the names that Prometheus has them under."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from paceline import config
from paceline.fusion.armed import armed
from paceline.fusion.driver import State
from paceline.fusion.report import report
from paceline.native.library import counters, library_name, loaded, read
from paceline.partial.stats import reader
from paceline.record.kept import keep_steps

PREFIX = "paceline_"
COUNTER, GAUGE = "counter", "gauge"
_STATES = ("off", "waiting", *(state.value for state in State))


@dataclass(frozen=True)
class Metric:
    """One number. `labels` are added to the labels of the rank."""

    name: str
    kind: str
    meaning: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def collect(library: ctypes.CDLL) -> Iterator[Metric]:
    """Yield the known metrics of this rank."""
    name = library_name(library)
    pace, counted, stats, merging = read(library, "record_pace"), counters(name), reader(name)(), report(name)
    assert pace is not None  # an older library is refused at the start
    armed_steps = armed(library)
    non_finite = library.horovod_paceline_non_finite()
    for metric, kind, meaning, value in (
        ("steps_total", COUNTER, "Training steps; one begins when a tensor's name comes again.", pace["steps"]),
        ("step_seconds", GAUGE, "Median time of a step, over the last 24.", pace["step_s"]),
        ("exposed_seconds", GAUGE, "Median time from a step's last gradient to its last result.", pace["exposed_s"]),
        ("coordination_rounds_total", COUNTER, "Coordination rounds.", counted["coordination_rounds"]),
        ("messages_total", COUNTER, "Executed collectives.", counted["messages"]),
        ("tensors_total", COUNTER, "Tensors in these collectives.", counted["tensors"]),
        ("bytes_total", COUNTER, "Bytes of these tensors.", counted["bytes"]),
        ("armed_steps_total", COUNTER, "Steps that were negotiated once.", armed_steps.steps),
        ("armed_fallbacks_total", COUNTER, "Armed steps that fell back to negotiation.", armed_steps.fallbacks),
        ("partial_rounds_total", COUNTER, "Partial rounds of all tensors.", stats.rounds),
        ("late_rounds_total", COUNTER, "Partial rounds that this rank came too late for.", stats.late),
        ("missed_rounds_total", COUNTER, "Partial rounds without a fresh gradient of this rank.", stats.missed),
        ("non_finite_gradients_total", COUNTER, "Submitted tensors with NaN or infinities, if checked.", non_finite),
        ("fusion_plan_version", GAUGE, "Number of the fusion plan; 0 before the first.", merging.version),
        ("fusion_messages", GAUGE, "Messages of a step under the fusion plan.", len(merging.groups)),
        ("fusion_timeouts_total", COUNTER, "Incomplete groups that were released.", merging.timeouts),
        ("fusion_predicted_step_seconds", GAUGE, "Step time that the fusion plan promises.", merging.predicted_step_s),
    ):  # fmt: skip
        if value is not None and value >= 0:
            yield Metric(PREFIX + metric, kind, meaning, value)
    for state in _STATES:
        meaning = "State of merging by plan: 1 for the present one."
        yield Metric(f"{PREFIX}fusion_state", GAUGE, meaning, int(state == merging.state), {"state": state})


def metrics_of(library_name: str) -> Callable[[], dict[str, float]]:
    """`metrics` of one adapter."""

    def metrics() -> dict[str, float]:
        """Numbers of this rank by name, the same as in its file for Prometheus (docs/guides/logging.md).

        Steps are counted and timed from the first call on, or from init() with PACELINE_METRICS or PACELINE_RECORD.
        """
        library = loaded(library_name)
        keep_steps(library, config.settings().record is not None)
        return {one.name: one.value for one in collect(library) if not one.labels}

    return metrics
