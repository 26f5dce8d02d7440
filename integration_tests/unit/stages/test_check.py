"""Schedules that cannot be followed are refused, with the stage, the instruction and the reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline.stages.check import check
from paceline.stages.flow import ScheduleError
from paceline.stages.instructions import Instruction, Kind
from paceline.stages.schedule import Schedule
from paceline.stages.schedules.gpipe import GPipe
from paceline.stages.schedules.pipemare import PipeMare
from paceline.stages.schedules.two_bw import TwoBW

Steps = tuple[Instruction, ...]
F00 = Instruction(Kind.FORWARD, 0, 0)
F01 = Instruction(Kind.FORWARD, 0, 1)
B00 = Instruction(Kind.BACKWARD, 0, 0)
B01 = Instruction(Kind.BACKWARD, 0, 1)
U0 = Instruction(Kind.UPDATE, 0)


class Edited(GPipe):
    """GPipe of 2 stages and 2 micro-batches; stage 1 does something else in its first step."""

    def __init__(self, edit: Callable[[list[Instruction]], object]) -> None:
        super().__init__(2, 2)
        self._edit = edit

    def of_step(self, stage: int, step: int) -> Steps:
        whole = list(super().of_step(stage, step))
        if (stage, step) == (1, 0):
            self._edit(whole)
        return tuple(whole)


@pytest.mark.parametrize(
    ("edit", "what", "reason"),
    [
        (lambda whole: whole.remove(F01), B01, "before its FORWARD"),
        (lambda whole: whole.insert(1, F00), F00, "a second time"),
        (lambda whole: whole.insert(0, Instruction(Kind.FORWARD, 1, 0)), "0 of mini-batch 1", "step 0 does"),
        (lambda whole: whole.insert(0, Instruction(Kind.FORWARD, 0, 2)), "micro-batch 2", "step 0 does not have that"),
        (lambda whole: whole.remove(B00), B01, "micro-batch 0 of mini-batch 0 is next"),
        (lambda whole: whole.reverse(), U0, "after 0 times BACKWARD"),
        (lambda whole: whole.remove(U0), "step 0", "ends before the update"),
        (lambda whole: whole.append(Instruction(Kind.UPDATE, 0)), U0, "the UPDATE of mini-batch 1 is next"),
        (lambda whole: whole.insert(4, Instruction(Kind.UPDATE, 0, 1)), "UPDATE", "about a whole mini-batch"),
    ],
)
def test_wrong_order_is_refused(edit: Callable[[list[Instruction]], object], what: object, reason: str) -> None:
    with pytest.raises(ScheduleError) as found:
        check(Edited(edit), 2)
    assert found.value.stage == 1
    assert str(what) in str(found.value)
    assert reason in str(found.value)
    assert "gpipe, 2 stages, 2 micro-batches" in str(found.value)


class Stuck(PipeMare):
    """Stage 1 is further ahead than stage 0 lets it be."""

    def ahead(self, stage: int) -> int:
        return stage


class Left(PipeMare):
    """Nothing is drained."""

    def drain(self, stage: int, steps: int) -> Steps:
        return ()


class Late(PipeMare):
    """Keeps a FORWARD for the drain, which has no data for it."""

    def of_step(self, stage: int, step: int) -> Steps:
        return tuple(one for one in super().of_step(stage, step) if one != F00)

    def drain(self, stage: int, steps: int) -> Steps:
        return (F00, *super().drain(stage, steps))


class TooEarly(TwoBW):
    """PipeDream-2BW as far ahead as PipeMare."""

    def ahead(self, stage: int) -> int:
        return self.stages - 1 - stage


@pytest.mark.parametrize(
    ("schedule", "steps", "said"),
    [
        (Stuck(2, 2), 1, r"stage 0, BACKWARD of micro-batch 0 .* for ever for stage 1, .* FORWARD"),
        (Left(2, 2), 3, "stage 0, the end: 5 times BACKWARD, 6 are due"),
        (Late(3, 2), 1, "a drain has no FORWARD"),
        (TooEarly(4, 2), 4, r"stage 0, FORWARD .* needs weights after 1 updates, 0 are done"),
    ],
)
def test_schedules_that_cannot_end_or_begin_are_refused(schedule: Schedule, steps: int, said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        check(schedule, steps)
    check(TooEarly(4, 3), 4)
