"""When each stage does what, if passes take given times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.stages import flow, versions
from paceline.stages.instructions import Instruction, Kind
from paceline.stages.schedule import Schedule

PerStage = float | Sequence[float]
# From one stage to its neighbour, in seconds.
PerWay = float | Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class Timed:
    """An instruction, when it is done, and at which version of its stage's weights (versions.py)."""

    instruction: Instruction
    start_s: float
    end_s: float
    version: int


@dataclass(frozen=True)
class Simulation:
    """`stages[i]` is what stage i does, in order; `activations` are micro-batches, `weight_copies` versions of the
    weights, both at most at once.
    """

    schedule: Schedule
    steps: int
    stages: tuple[tuple[Timed, ...], ...]
    activations: tuple[int, ...]
    weight_copies: tuple[int, ...]

    @property
    def end_s(self) -> float:
        """When the last stage has ended."""
        return max(timed[-1].end_s for timed in self.stages)

    def utilisation(self) -> tuple[float, ...]:
        """Per stage, the share of all the time in which it computes; filling and draining count."""
        return tuple(_busy_s(timed) / self.end_s for timed in self.stages)

    def steady_utilisation(self) -> tuple[float, ...]:
        """The same without filling and draining: between the beginnings of two mini-batches on that stage. Raises
        ValueError for fewer steps than `steady_steps`.
        """
        if self.steps < steady_steps(self.schedule):
            raise ValueError(f"{self.steps} steps are not enough, give {steady_steps(self.schedule)}")
        first, last = filling_steps(self.schedule), self.steps - 1
        shares = []
        for timed in self.stages:
            starts = [
                place
                for place, one in enumerate(timed)
                if one.instruction in (Instruction(Kind.FORWARD, first, 0), Instruction(Kind.FORWARD, last, 0))
            ]
            begin, end = starts
            shares.append(_busy_s(timed[begin:end]) / (timed[end].start_s - timed[begin].start_s))
        return tuple(shares)


def _busy_s(timed: Sequence[Timed]) -> float:
    return sum(one.end_s - one.start_s for one in timed)


def filling_steps(schedule: Schedule) -> int:
    """Steps after which every stage runs as far ahead as it ever will, and versions differ as they always will."""
    return -(-2 * max(schedule.stages, schedule.ahead(0) + 1) // schedule.microbatches) + 1


def steady_steps(schedule: Schedule) -> int:
    """So many steps show a steady state."""
    return filling_steps(schedule) + 4


def simulate(
    schedule: Schedule,
    steps: int,
    forward_s: PerStage = 1.0,
    backward_s: PerStage = 1.0,
    update_s: PerStage = 0.0,
    transfer_s: PerWay = 0.0,
) -> Simulation:
    """So many steps and a drain. Times are seconds of each stage, or one for all; `transfer_s` passes between the end
    of a pass and the moment at which the neighbour has its result, while the stage goes on: by (sender, receiver), or
    one for all. Raises ScheduleError where stages wait for ever.
    """
    seconds = {
        Kind.FORWARD: _per_stage(schedule, forward_s),
        Kind.BACKWARD: _per_stage(schedule, backward_s),
        Kind.UPDATE: _per_stage(schedule, update_s),
    }
    programs = [flow.program(schedule, stage, steps) for stage in range(schedule.stages)]
    used = [versions.versions(schedule, one) for one in programs]
    ends_s: dict[tuple[int, Instruction], float] = {}
    stages: list[list[Timed]] = [[] for _ in programs]
    for stage, instruction in flow.in_order(schedule, steps):
        before = stages[stage]
        start_s = before[-1].end_s if before else 0.0
        sender = flow.source(instruction, stage, schedule.stages)
        if sender is not None:
            start_s = max(start_s, ends_s[sender, instruction] + _between(transfer_s, sender, stage))
        end_s = start_s + seconds[instruction.kind][stage]
        ends_s[stage, instruction] = end_s
        before.append(Timed(instruction, start_s, end_s, used[stage][len(before)]))
    return Simulation(
        schedule,
        steps,
        tuple(map(tuple, stages)),
        tuple(map(versions.activations, programs)),
        tuple(map(versions.copies, programs, used)),
    )


def _between(given: PerWay, sender: int, receiver: int) -> float:
    return float(given) if isinstance(given, int | float) else given[sender, receiver]


def _per_stage(schedule: Schedule, given: PerStage) -> Sequence[float]:
    if isinstance(given, int | float):
        return [float(given)] * schedule.stages
    if len(given) != schedule.stages:
        raise ValueError(f"{len(given)} times for {schedule.stages} stages")
    return given
