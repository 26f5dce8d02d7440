"""Theoretical costs of a stage schedule, for stages that take equally long and transfers that take no time."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.stages.schedule import Schedule


@dataclass(frozen=True)
class Costs:
    """Costs of a schedule.

    Attributes:
        utilisation: share of time in which each stage computes, once the pipeline is full.
        weight_copies: by stage, maximum number of versions of the weights at once, without the additional buffer of
            PipeMare's discrepancy correction (T2).
        activations: by stage, maximum number of micro-batches whose activations are kept.
    """

    utilisation: float
    weight_copies: tuple[int, ...]
    activations: tuple[int, ...]


def costs(schedule: Schedule) -> Costs:
    """Return the costs, which follow from each stage's lead and the weights that it uses."""
    stages = range(schedule.stages)
    return Costs(
        _utilisation(schedule),
        tuple(_weight_copies(schedule, stage) for stage in stages),
        tuple(_activations(schedule, stage) for stage in stages),
    )


def _utilisation(schedule: Schedule) -> float:
    stages, microbatches = schedule.stages, schedule.microbatches
    if schedule.synchronous:
        return microbatches / (microbatches + stages - 1)
    # Stage i starts a FORWARD after a BACKWARD that came back from stage j. The round trip takes the time of j - i + 1
    # micro-batches on one stage, in which ahead(i) - ahead(j) + 1 FORWARDs may begin.
    return min(
        (schedule.ahead(i) - schedule.ahead(j) + 1) / (j - i + 1) for i in range(stages) for j in range(i, stages)
    )


def _weight_copies(schedule: Schedule, stage: int) -> int:
    if schedule.forward_weights == "previous":
        return 2
    if schedule.backward_weights == "forwards":
        return -(-schedule.ahead(stage) // schedule.microbatches) + 1
    return 1


def _activations(schedule: Schedule, stage: int) -> int:
    held = schedule.ahead(stage) + 1
    return min(held, schedule.microbatches) if schedule.synchronous else held
