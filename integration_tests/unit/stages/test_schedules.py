"""Schedules of stages: what each does in each tick, as the papers draw it, and the properties of all of them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from paceline.errors import UserError
from paceline.stages import schedules
from paceline.stages.check import check
from paceline.stages.instructions import Kind
from paceline.stages.schedule import Schedule
from paceline.stages.simulate import simulate, steady_steps

EVERY = [
    pytest.param(name, stages, microbatches, id=f"{name}-{stages}-{microbatches}")
    for name, stages, microbatches in product(schedules.SCHEDULES, range(1, 7), range(1, 10))
]


def drawn(schedule: Schedule, steps: int) -> list[str]:
    """A line for each stage, a word for each tick; passes take one tick, `*` marks an update."""
    shown = simulate(schedule, steps)
    lines = []
    for timed in shown.stages:
        words = [".."] * round(shown.end_s)
        for one in timed:
            instruction = one.instruction
            number = instruction.minibatch * schedule.microbatches + instruction.microbatch
            if instruction.kind is Kind.UPDATE:
                words[round(one.start_s) - 1] += "*"
            else:
                words[round(one.start_s)] = f"{instruction.kind.name[0]}{number}"
        lines.append(" ".join(words))
    return lines


# fmt: off
TABLES = {
    ("gpipe", 3, 3, 1): [
        "F0 F1 F2 .. .. .. .. B0 B1 B2*",
        ".. F0 F1 F2 .. .. B0 B1 B2* ..",
        ".. .. F0 F1 F2 B0 B1 B2* .. ..",
    ],
    ("1f1b", 3, 3, 1): [
        "F0 F1 F2 .. .. B0 .. B1 .. B2*",
        ".. F0 F1 .. B0 F2 B1 .. B2* ..",
        ".. .. F0 B0 F1 B1 F2 B2* .. ..",
    ],
    ("pipemare", 3, 2, 3): [
        "F0 F1 F2 .. .. B0 F3 B1* F4 B2 F5 B3* .. B4 .. B5*",
        ".. F0 F1 .. B0 F2 B1* F3 B2 F4 B3* F5 B4 .. B5* ..",
        ".. .. F0 B0 F1 B1* F2 B2 F3 B3* F4 B4 F5 B5* .. ..",
    ],
    ("pipemare_eager", 3, 2, 4): [
        "F0 F1 F2 F3 F4 B0 F5 B1* F6 B2 F7 B3* .. B4 .. B5* .. B6 .. B7*",
        ".. F0 F1 F2 B0 F3 B1* F4 B2 F5 B3* F6 B4 F7 B5* .. B6 .. B7* ..",
        ".. .. F0 B0 F1 B1* F2 B2 F3 B3* F4 B4 F5 B5* F6 B6 F7 B7* .. ..",
    ],
    # N < P - 1: no stage may be more than N ahead, for version t - 1 to be there.
    ("2bw", 3, 1, 3): [
        "F0 F1 .. .. .. B0* F2 .. .. B1* .. .. .. B2*",
        ".. F0 .. .. B0* F1 .. .. B1* F2 .. .. B2* ..",
        ".. .. F0 B0* .. .. F1 B1* .. .. F2 B2* .. ..",
    ],
}
# fmt: on


@pytest.mark.parametrize("key", TABLES, ids=str)
def test_ticks_are_those_that_papers_draw(key: tuple[str, int, int, int]) -> None:
    name, stages, microbatches, steps = key
    assert drawn(schedules.make(name, stages, microbatches), steps) == TABLES[key]


@pytest.mark.parametrize(("name", "stages", "microbatches"), EVERY)
def test_every_schedule_can_be_followed(name: str, stages: int, microbatches: int) -> None:
    schedule = schedules.make(name, stages, microbatches)
    for steps in (0, 1, 2, steady_steps(schedule)):
        check(schedule, steps)


@pytest.mark.parametrize(("name", "stages", "microbatches"), EVERY)
def test_loss_is_known_when_it_is_returned(name: str, stages: int, microbatches: int) -> None:
    """The last stage has the loss before any other ends its step, also if it is slow, and that of a step later not."""
    schedule = schedules.make(name, stages, microbatches)
    steps = steady_steps(schedule)
    shown = simulate(schedule, steps, forward_s=[1.0] * (stages - 1) + [100.0])
    known_s = {
        one.instruction.minibatch: one.end_s
        for one in shown.stages[-1]
        if one.instruction.kind is Kind.FORWARD and one.instruction.microbatch == microbatches - 1
    }
    for stage, timed in enumerate(shown.stages):
        ends_s = {one.instruction: one.end_s for one in timed}
        for step in range(schedule.loss_lag, steps):
            assert known_s[step - schedule.loss_lag] <= ends_s[schedule.of_step(stage, step)[-1]]
    if schedule.loss_lag:
        first = {one.instruction: one.end_s for one in shown.stages[0]}
        assert known_s[steps - schedule.loss_lag] > first[schedule.of_step(0, steps - 1)[-1]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("zigzag", 2, 2), "no schedule 'zigzag'"),
        (("gpipe", 0, 2), "0 stages"),
        (("1f1b", 2, 0), "0 micro-batches"),
        (("2bw", 2, -1), "-1 micro-batches"),
        (("pipemare", 2.5, 1), "2.5 stages"),
    ],
)
def test_what_cannot_be_made_is_refused(arguments: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        schedules.make(*arguments)
