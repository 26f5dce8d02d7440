"""Clocks of ranks compared: all ranks see the end of a collective at nearly the same moment."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from paceline.record.trace import Step


def shifts_s(ranks: Sequence[Sequence[Step]]) -> list[float]:
    """Return for each rank's steps the seconds by which its clock is ahead of the first rank's.

    The median over the collectives that both ranks recorded in steps of the same index; the difference between the
    starts of the first such step where they recorded none.
    """
    reference = {step.index: step for step in ranks[0]}
    return [_shift_s([(step, reference[step.index]) for step in steps if step.index in reference]) for steps in ranks]


def _shift_s(pairs: Sequence[tuple[Step, Step]]) -> float:
    ends_s = [
        here.end_s - there.end_s
        for step, reference in pairs
        for here, there in zip(step.collectives, reference.collectives, strict=False)
        if here.kind == there.kind and here.size_bytes == there.size_bytes
    ]
    starts_s = [step.start_s - reference.start_s for step, reference in pairs[:1]]
    return median(ends_s or starts_s or [0.0])
