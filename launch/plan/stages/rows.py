"""Figures for each stage of a schedule."""

from __future__ import annotations

import dataclasses
from typing import Any

from paceline.launch.plan.stages.times import Times
from paceline.stages import stability
from paceline.stages.delays import delays, most_late
from paceline.stages.schedule import Schedule
from paceline.stages.simulate import steady_steps


@dataclasses.dataclass(frozen=True)
class Row:
    """Figures of one stage.

    `tau_forward`, `tau_backward`: delays in updates, mean over micro-batches; `most_late`: the largest. `stable_below`:
    limit of learning rate times curvature for stable training. `utilisation`: share of time spent computing in steady
    state. `weight_copies`, `activations`: maximal number of weight copies, and of micro-batches with stored
    activations.
    """

    stage: int
    tau_forward: float
    tau_backward: float
    most_late: int
    stable_below: float
    utilisation: float
    weight_copies: int
    activations: int

    def as_values(self) -> dict[str, Any]:
        """Return all figures by name."""
        return dataclasses.asdict(self)


def of_stages(schedule: Schedule, times: Times) -> list[Row]:
    """Return a row for each stage, from enough steps to reach a steady state."""
    steady = times.simulated(schedule, steady_steps(schedule))
    columns = zip(
        delays(schedule),
        most_late(schedule),
        steady.steady_utilisation(),
        steady.weight_copies,
        steady.activations,
        strict=True,
    )
    return [
        Row(stage, forward, backward, latest, stability.bound(forward), utilisation, copies, activations)
        for stage, ((forward, backward), latest, utilisation, copies, activations) in enumerate(columns)
    ]
