"""The state of merging by plan on one rank, and steps until all ranks follow their plan.

Merging measures and plans for some tens of steps. Ranks may learn of a state at different times, but all must make the
same number of steps. So the controller orders small batches of steps and checks the state of every rank after each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.errors import UserError

if TYPE_CHECKING:
    from paceline.fusion.report import FusionReport

ACTIVE = "active"
REFUSED = "refused"
BATCH_STEPS = 5
MOST_STEPS = 1000
LIMIT_S = 900.0  # tens of steps of several seconds each, on a machine that others use


@dataclass(frozen=True)
class Plan:
    """The active plan and its costs: a message of n bytes takes a_s + b_s_per_byte n, after `coordination_s`.

    `step_s` is the predicted step, `exposed_s` its part that waits for communication. `timeouts` counts messages that
    were sent incomplete.
    """

    version: int
    timeouts: int
    group_bytes: tuple[int, ...]
    a_s: float
    b_s_per_byte: float
    coordination_s: float
    step_s: float
    exposed_s: float


@dataclass(frozen=True)
class Merging:
    """State of a rank, with a reason if there is one, and the plan that the rank follows, if any."""

    state: str
    reason: str
    plan: Plan | None


@dataclass(frozen=True)
class Ready:
    """Message of a rank that has made unmeasured steps, the last in `step_s`. `merging` is None without plans."""

    step_s: float
    merging: Merging | None = None


@dataclass(frozen=True)
class WarmUp:
    """Order of `steps` unmeasured steps and, with `check`, one more whose results are checked."""

    steps: int
    check: bool


def of_this_rank(library: str = "torch") -> Merging:
    """Return the state of this process, for Horovod's `library`.

    If a plan's steps are to be armed, it is active only once they are armed.
    """
    from paceline.fusion.report import report

    found = report(library)
    if found.state == ACTIVE and _waits_for_armed(found):
        return Merging(f"{found.state}, not armed", found.armed.reason, None)
    expected = (
        found.a_s,
        found.b_s_per_byte,
        found.coordination_s,
        found.predicted_step_s,
        found.predicted_exposed_s,
    )
    known = [figure for figure in expected if figure is not None]
    plan = None
    if found.state == ACTIVE and len(known) == len(expected):
        plan = Plan(found.version, found.timeouts, tuple(found.group_bytes), *known)
    return Merging(found.state, found.reason, plan)


def _waits_for_armed(found: FusionReport) -> bool:
    from paceline import config

    return config.read().armed and len(found.groups) > 1 and found.armed.state not in ("armed", "running")


def states(ranks: Sequence[Merging]) -> str:
    """Return each state once, with its ranks: "active (rank 0, 2), sweeping: too few sizes (rank 1)"."""
    standing: dict[str, list[int]] = {}
    for rank, one in enumerate(ranks):
        standing.setdefault(f"{one.state}: {one.reason}" if one.reason else one.state, []).append(rank)
    return ", ".join(f"{state} (rank {', '.join(map(str, those))})" for state, those in standing.items())


def check_not_refused(system: str, ranks: Sequence[Merging]) -> None:
    """Raise UserError if a rank refuses to merge: the measurement would not match its label."""
    for rank, one in enumerate(ranks):
        if one.state == REFUSED:
            raise UserError(
                f"Rank {rank} of {system} refuses to merge: {one.reason or 'no reason given'}.",
                "Correct what it names, or leave the system out: systems=...",
            )


def until_active(
    system: str,
    ready: Sequence[Ready],
    ask: Callable[[WarmUp], list[Ready]],
    log: Callable[[str], None] = lambda text: None,
) -> list[Ready]:
    """Order steps until all ranks follow their plan, and one more whose results are checked. Return the last answers.

    A system without plans makes no step. Raises UserError when a rank refuses, and after MOST_STEPS or LIMIT_S.
    """
    answers = list(ready)
    begin_s, steps = time.monotonic(), 0
    while True:
        merging = [one.merging for one in answers if one.merging is not None]
        if all(one.plan for one in merging):
            return ask(WarmUp(1, check=True)) if merging else answers
        check_not_refused(system, merging)
        elapsed_s = time.monotonic() - begin_s
        if steps >= MOST_STEPS or elapsed_s >= LIMIT_S:
            raise UserError(
                f"{system} does not merge by a plan after {steps} steps in {elapsed_s:.0f} s: {states(merging)}.",
                "Take a smaller model (resnet50-x0.1 has a tenth of the bytes), or leave the system out: systems=...",
            )
        log(f"{system} warms up, {steps} steps, {states(merging)}")
        answers = ask(WarmUp(BATCH_STEPS, check=False))
        steps += BATCH_STEPS
