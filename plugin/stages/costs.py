"""What a schedule costs in theory, for stages that all take equally long and transfers that take no time."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.stages.schedule import Schedule


@dataclass(frozen=True)
class Costs:
    """`utilisation`: the share of time in which stages compute, once the pipeline is full; the same for all of them.
    Per stage: `weight_copies`, versions of the weights at once, and `activations`, micro-batches whose activations are
    kept; both at most. PipeMare's discrepancy correction (T2) keeps one more buffer of the weights' size.
    """

    utilisation: float
    weight_copies: tuple[int, ...]
    activations: tuple[int, ...]


def costs(schedule: Schedule) -> Costs:
    """They follow from how far stages run ahead, and which weights they take."""
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
    # From one stage to the last and back a micro-batch takes as long as P - stage of them on one stage.
    return min(1.0, *((schedule.ahead(stage) + 1) / (stages - stage) for stage in range(stages)))


def _weight_copies(schedule: Schedule, stage: int) -> int:
    if schedule.forward_weights == "previous":
        return 2
    if schedule.backward_weights == "forwards":
        return -(-schedule.ahead(stage) // schedule.microbatches) + 1
    return 1


def _activations(schedule: Schedule, stage: int) -> int:
    held = schedule.ahead(stage) + 1
    return min(held, schedule.microbatches) if schedule.synchronous else held
