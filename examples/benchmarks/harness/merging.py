"""How far the merging of gradients is on one rank: what `paceline.fusion` reports, as plain values that travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.fusion.report import FusionReport

ACTIVE = "active"
REFUSED = "refused"


@dataclass(frozen=True)
class Plan:
    """The plan in force and what was expected of it.

    `group_bytes` are the sizes of its messages in their order. A message of n bytes is taken to need
    a_s + b_s_per_byte n seconds, after `coordination_s`. `step_s` is the step that the plan promises, `exposed_s` the
    part of it that waits for communication, and `stock_step_s` the step that Horovod's own merging should make; they
    are None where steps are not what plans foretell. `timeouts` counts groups that were let go incomplete so far.
    """

    version: int
    timeouts: int
    group_bytes: tuple[int, ...]
    a_s: float
    b_s_per_byte: float
    coordination_s: float
    step_s: float | None
    exposed_s: float | None
    stock_step_s: float | None


@dataclass(frozen=True)
class Merging:
    """A rank's report: how far it is (`state`, with a `reason` where there is one), and its plan if it follows one."""

    policy: str
    state: str
    reason: str
    plan: Plan | None

    @property
    def active(self) -> bool:
        """Whether this rank merges by a plan."""
        return self.plan is not None


def of_this_rank() -> Merging:
    """The report of PyTorch's Horovod in this process. A plan whose steps are to be armed is followed once they are."""
    from paceline.fusion.report import report

    found = report(library="torch")
    if found.state == ACTIVE and _waits_for_armed(found):
        return Merging(found.policy, f"{found.state}, not armed", found.armed.reason, None)
    expected = (
        found.a_s,
        found.b_s_per_byte,
        found.coordination_s,
        found.predicted_step_s,
        found.predicted_exposed_s,
        found.predicted_stock_step_s,
    )
    known = [figure for figure in expected if figure is not None]
    plan = None
    if found.state == ACTIVE and len(known) == len(expected):
        plan = Plan(found.version, found.timeouts, tuple(found.group_bytes), *known)
    return Merging(found.policy, found.state, found.reason, plan)


def _waits_for_armed(found: FusionReport) -> bool:
    """Whether the variables ask for armed steps, the plan can have them, and they are not armed."""
    from paceline import config

    return config.read().armed and len(found.groups) > 1 and found.armed.state not in ("armed", "running")


def of_this_rank_without_forecast() -> Merging:
    """The same for gradients that are used in a later step; plans foretell steps that wait for their own."""
    found = of_this_rank()
    plan = found.plan and replace(found.plan, step_s=None, exposed_s=None, stock_step_s=None)
    return replace(found, plan=plan)


def states(ranks: Sequence[Merging]) -> str:
    """Where the ranks stand, each state once with its ranks: "active (rank 0, 2), sweeping: too few sizes (rank 1)"."""
    standing: dict[str, list[int]] = {}
    for rank, one in enumerate(ranks):
        standing.setdefault(f"{one.state}: {one.reason}" if one.reason else one.state, []).append(rank)
    return ", ".join(f"{state} (rank {', '.join(map(str, those))})" for state, those in standing.items())
