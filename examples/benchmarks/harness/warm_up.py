"""Steps before anything is measured: until a system that plans from measurements works by its plan.

Merging measures and plans for some tens of steps. How many is its own affair, and ranks may differ in what they know
at a time, but all of them must make the same number of steps: so the controller hands out small batches and asks after
each how far every rank is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from paceline.errors import UserError
from paceline.examples.benchmarks.harness.assignment import Measured, Ready, WarmUp
from paceline.examples.benchmarks.harness.merging import REFUSED, Merging, states

BATCH_STEPS = 5
MOST_STEPS = 1000
LIMIT_S = 900.0  # tens of steps of several seconds each, on a machine that others use


def mergings(ranks: Sequence[Ready | Measured]) -> list[Merging]:
    """What the ranks report, in the order of ranks; none for a system that merges nothing."""
    return [one.merging for one in ranks if one.merging is not None]


def check_not_refused(system: str, ranks: Sequence[Merging]) -> None:
    """Raise UserError if a rank refuses to merge: the benchmark would measure something else than it says."""
    for rank, one in enumerate(ranks):
        if one.state == REFUSED:
            raise UserError(
                f"Rank {rank} of {system} refuses to merge: {one.reason or 'no reason given'}.",
                "Correct what it names, or measure other policies: `python -m examples.benchmarks fusion --policy`.",
            )


def until_active(
    system: str,
    ranks: Sequence[Ready],
    ask: Callable[[WarmUp], list[Ready]],
    tell: Callable[[str], None] = lambda text: None,
) -> list[Ready]:
    """Ask the ranks for steps until all merge by their plan, and for one whose gradients are checked.

    `ranks` is how they stand now; `ask` has all ranks make the steps. Returns how they stand in the end; a system that
    does not merge by plan is asked for nothing. Raises UserError when a rank refuses, or when MOST_STEPS or LIMIT_S
    have passed.
    """
    ranks = list(ranks)
    begin_s, steps = time.monotonic(), 0
    while not all(one.active for one in mergings(ranks)):
        check_not_refused(system, mergings(ranks))
        elapsed_s = time.monotonic() - begin_s
        if steps >= MOST_STEPS or elapsed_s >= LIMIT_S:
            raise UserError(
                f"{system} does not merge by a plan after {steps} steps in {elapsed_s:.0f} s:"
                f" {states(mergings(ranks))}.",
                "Take a smaller model (resnet50-x0.1 has a tenth of the bytes), or measure other policies:"
                " `python -m examples.benchmarks fusion --policy`.",
            )
        tell(f"{system} warms up, {steps} steps, {states(mergings(ranks))}")
        ranks = ask(WarmUp(BATCH_STEPS, check=False))
        steps += BATCH_STEPS
    return ask(WarmUp(1, check=True)) if mergings(ranks) else ranks
