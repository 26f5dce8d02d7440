"""What there is to say of each stage of a schedule."""

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
    """One stage: delays in updates, mean over micro-batches, and the largest; up to which learning rate times curvature
    training is stable; the share of time in which it computes, in steady state; copies of its weights and micro-batches
    whose activations it keeps, both at most.
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
        """All of it by name."""
        return dataclasses.asdict(self)


def of_stages(schedule: Schedule, times: Times) -> list[Row]:
    """A row for each stage, with as many steps as show a steady state."""
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
