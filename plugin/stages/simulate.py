"""Simulation of a stage schedule: start and end of each instruction for given times of passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.stages import flow, versions
from paceline.stages.instructions import Instruction, Kind
from paceline.stages.schedule import Schedule

PerStage = float | Sequence[float]
# Seconds by (stage, neighbour), or for all.
PerWay = float | Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class Timed:
    """An instruction, its start and end, and the version of its stage's weights (versions.py)."""

    instruction: Instruction
    start_s: float
    end_s: float
    version: int


@dataclass(frozen=True)
class Simulation:
    """Result of a simulation.

    `stages[i]` has the instructions of stage i, in order. `activations` (in micro-batches) and `weight_copies`
    (versions of the weights) are the maxima that each stage holds at once.
    """

    schedule: Schedule
    steps: int
    stages: tuple[tuple[Timed, ...], ...]
    activations: tuple[int, ...]
    weight_copies: tuple[int, ...]

    @property
    def end_s(self) -> float:
        """End of the last stage."""
        return max(timed[-1].end_s for timed in self.stages)

    def utilisation(self) -> tuple[float, ...]:
        """Return each stage's share of the total time in which it computes, including filling and draining."""
        return tuple(_busy_s(timed) / self.end_s for timed in self.stages)

    def steady_utilisation(self) -> tuple[float, ...]:
        """Return each stage's utilisation without filling and draining: between the starts of two mini-batches on it.

        Raises ValueError for fewer steps than `steady_steps`.
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
    """Return the number of steps after which every stage's lead and the difference of versions are maximal."""
    return -(-2 * max(schedule.stages, schedule.ahead(0) + 1) // schedule.microbatches) + 1


def steady_steps(schedule: Schedule) -> int:
    """Return the number of steps that show a steady state."""
    return filling_steps(schedule) + 4


def simulate(
    schedule: Schedule,
    steps: int,
    forward_s: PerStage = 1.0,
    backward_s: PerStage = 1.0,
    update_s: PerStage = 0.0,
    transfer_s: PerWay = 0.0,
) -> Simulation:
    """Simulate `steps` steps and a drain.

    Times are seconds of each stage, or one for all. `transfer_s`: time from the end of a pass until the neighbour has
    its result, while the stage continues; by (sender, receiver), or one for all. Raises ScheduleError for a deadlock.
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
