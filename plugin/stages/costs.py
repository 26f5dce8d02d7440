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
    # Stage i goes on with a FORWARD after a BACKWARD that came back from stage j. The way there and back takes as long
    # as j - i + 1 micro-batches on one stage, and lets so many FORWARDs begin as i is further ahead than j, and one.
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
