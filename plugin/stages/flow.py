"""Dependencies of instructions on other stages, and an order that respects them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from paceline.stages.instructions import Instruction, Kind
from paceline.stages.schedule import Schedule

# Offset of the stage whose result of the same instruction is needed.
_NEIGHBOUR = {Kind.FORWARD: -1, Kind.BACKWARD: 1}


class ScheduleError(Exception):
    """A schedule that cannot be followed, or would not train the model as it promises."""

    def __init__(self, schedule: Schedule, stage: int, what: Instruction | str, reason: str) -> None:
        super().__init__(
            f"Schedule {schedule.name}, {schedule.stages} stages, {schedule.microbatches} micro-batches: "
            f"stage {stage}, {what}: {reason}."
        )
        self.stage = stage
        self.what = what
        self._made_of = schedule, stage, what, reason

    def __reduce__(self) -> tuple[type[ScheduleError], tuple[Schedule, int, Instruction | str, str]]:
        return type(self), self._made_of


def source(instruction: Instruction, stage: int, stages: int) -> int | None:
    """Return the stage that must do the same instruction before and sends its result, or None."""
    if instruction.kind not in _NEIGHBOUR:
        return None
    neighbour = stage + _NEIGHBOUR[instruction.kind]
    return neighbour if 0 <= neighbour < stages else None


def program(schedule: Schedule, stage: int, steps: int) -> tuple[Instruction, ...]:
    """Return all instructions of the stage in `steps` steps and the drain that follows."""
    parts = (schedule.of_step(stage, step) for step in range(steps))
    return (*chain.from_iterable(parts), *schedule.drain(stage, steps))


def in_order(schedule: Schedule, steps: int) -> Iterator[tuple[int, Instruction]]:
    """Yield (stage, instruction) for all stages, each after its dependencies.

    This is the order of stages that wait for receives and never for sends. Raises ScheduleError for a deadlock.
    """
    stages = range(schedule.stages)
    programs = [program(schedule, stage, steps) for stage in stages]
    places = [0] * schedule.stages
    done: set[tuple[int, Instruction]] = set()

    def waits_for(stage: int) -> tuple[int, Instruction] | None:
        instruction = programs[stage][places[stage]]
        needed = source(instruction, stage, schedule.stages)
        return None if needed is None or (needed, instruction) in done else (needed, instruction)

    moved = True
    while moved:
        moved = False
        for stage in stages:
            while places[stage] < len(programs[stage]) and waits_for(stage) is None:
                instruction = programs[stage][places[stage]]
                yield stage, instruction
                done.add((stage, instruction))
                places[stage] += 1
                moved = True
    for stage in stages:
        if places[stage] < len(programs[stage]):
            needed = waits_for(stage)
            assert needed is not None
            doing = programs[needed[0]][places[needed[0]] :][:1]
            other = f"which is at {doing[0]}" if doing else "which has ended"
            raise ScheduleError(
                schedule, stage, programs[stage][places[stage]], f"waits for ever for stage {needed[0]}, {other}"
            )
