"""Stages of hvd.Pipeline that are killed, raise or stop at an instruction: all others end, and say who it was."""

from __future__ import annotations

import random
import time

import pytest

from integration_tests.support.ranks import World
from integration_tests.support.stage_faults import Case, drawn, problems


def _all_end(cases: list[Case]) -> None:
    """The cases are of one number of stages, and only the last is one of kill."""
    world = World(cases[0].stages, {})
    try:
        for case in cases:
            found = problems(world, case)
            assert not found, "\n".join([str(case), *found])
    finally:
        world.end()


@pytest.mark.timeout(300)  # three faults in a row, one of which is waited for
@pytest.mark.parametrize(
    ("stages", "hows"),
    [(2, ["raise", "stop", "kill"]), (3, ["raise", "raise", "kill"]), (4, ["raise", "stop", "kill"])],
)
def test_survivors_name_the_stage(stages: int, hows: list[str]) -> None:
    dice = random.Random(stages)
    _all_end([drawn(dice, how, stages) for how in hows])


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_failures() -> None:
    failed, count = soak(200, 1)
    assert count == 200
    assert not failed, "\n".join(failed)


def soak(count: int, seed: int, most_s: float = 7000.0) -> tuple[list[str], int]:
    """What was wrong in so many cases, or as many as there was time for; and how many these are."""
    dice = random.Random(seed)
    world: World | None = None
    failed: list[str] = []
    done, begin_s = 0, time.monotonic()
    try:
        while done < count and time.monotonic() - begin_s < most_s:
            stages = dice.randint(2, 4)
            # A world lasts until a rank of it is killed.
            for how in [*["raise", "stop"] * 3, "kill"][: count - done]:
                case = drawn(dice, how, stages)
                world = world or World(stages, {})
                case_begin_s = time.monotonic()
                found = problems(world, case)
                done += 1
                print(f"{done} {time.monotonic() - case_begin_s:.1f} s {case} {found}", flush=True)
                if found:
                    failed += [str(case), *found]
                    break
            if world is not None:
                world.end()
                world = None
    finally:
        if world is not None:
            world.end()
    return failed, done
