"""Stages of hvd.Pipeline that are killed, raise or stop at an instruction: all others end, and name the stage."""

from __future__ import annotations

import random

import pytest

from integration_tests.support.more import more
from integration_tests.support.ranks import World
from integration_tests.support.stage_faults import Case, drawn, let_happen

KINDS = ["raise", "stop", "kill"]


def _all_end(cases: list[Case]) -> None:
    """The cases are of one number of stages, and only the last is one of kill, which ends their world."""
    world = World(cases[0].stages, {}, ("torch",))
    try:
        for case in cases:
            heard = let_happen(world, case)
            print(case, heard, flush=True)
            assert not heard.problems, "\n".join([str(case), *heard.problems])
    finally:
        world.end()


@pytest.mark.parametrize("stages", [more(2), 3, more(4)])
def test_survivors_name_the_stage(stages: int) -> None:
    dice = random.Random(stages)
    _all_end([drawn(dice, how, stages) for how in KINDS])


# Two hundred altogether; both at once take half the time.
@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_hundred_failures(seed: int) -> None:
    dice = random.Random(seed)
    left = 100
    while left > 0:
        hows = [*["raise", "stop"] * 3, "kill"][:left]
        stages = dice.randint(2, 4)
        _all_end([drawn(dice, how, stages) for how in hows])
        left -= len(hows)
