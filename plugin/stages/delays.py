"""Delay of a stage's gradients, in updates of that stage.

tau_forward of a micro-batch: updates between its FORWARD and the UPDATE that applies its gradient; tau_backward: the
same for the weights that its BACKWARD uses. Both are counted in the schedule's own instructions, as an executor would
measure them.

PipeMare's paper has (2(P-i)+1)/N for stages i = 1 .. P. It counts slots of hardware in which a stage does a forward
*and* a backward pass, and is 2(P-i)+1 micro-batches ahead. With one pass at a time P-i are enough, so that Paceline's
delays are (P-i)/N.
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.stages import flow, versions
from paceline.stages.instructions import Kind
from paceline.stages.schedule import Schedule
from paceline.stages.simulate import filling_steps


def delays(schedule: Schedule) -> list[tuple[float, float]]:
    """Return (tau_forward, tau_backward) of each stage, once the pipeline is full: means over a mini-batch."""
    means = []
    for forwards, backwards in _of_microbatches(schedule):
        means.append((sum(forwards) / len(forwards), sum(backwards) / len(backwards)))
    return means


def most_late(schedule: Schedule) -> list[int]:
    """Return the largest tau_forward of any micro-batch, for each stage: the drift of weights in one micro-batch."""
    return [max(forwards) for forwards, _ in _of_microbatches(schedule)]


def paper_delays(stages: int, microbatches: int) -> list[float]:
    """Return (2(P-i)+1)/N for i = 1 .. P: tau_forward of PipeMare, and both taus of PipeDream (PipeMare, Table 1)."""
    return [(2 * (stages - i) + 1) / microbatches for i in range(1, stages + 1)]


def _of_microbatches(schedule: Schedule) -> Iterator[tuple[list[int], list[int]]]:
    """Yield, for each stage, tau_forward and tau_backward of all micro-batches of one mini-batch."""
    shown = filling_steps(schedule)
    for stage in range(schedule.stages):
        program = flow.program(schedule, stage, shown + 1)
        taus: dict[Kind, list[int]] = {Kind.FORWARD: [], Kind.BACKWARD: []}
        for one, version in zip(program, versions.versions(schedule, program), strict=True):
            if one.minibatch == shown and one.kind in taus:
                # Updates are in the order of mini-batches: the update of mini-batch t is applied to version t.
                taus[one.kind].append(shown - version)
        yield taus[Kind.FORWARD], taus[Kind.BACKWARD]
