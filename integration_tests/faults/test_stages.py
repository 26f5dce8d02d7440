"""Stages of hvd.Pipeline that are killed, raise or stop at an instruction: all others end, and say who it was."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict

import pytest

from integration_tests.support.more import more
from integration_tests.support.ranks import World
from integration_tests.support.stage_faults import Case, drawn, let_happen

KINDS = ["raise", "stop", "kill"]


def _all_end(cases: list[Case]) -> None:
    """The cases are of one number of stages, and only the last is one of kill."""
    world = World(cases[0].stages, {}, ("torch",))
    try:
        for case in cases:
            problems = let_happen(world, case).problems
            assert not problems, "\n".join([str(case), *problems])
    finally:
        world.end()


@pytest.mark.timeout(300)  # three faults in a row, one of which is waited for
@pytest.mark.parametrize(
    ("stages", "hows"),
    [more(2, KINDS), (3, KINDS), more(4, KINDS)],
)
def test_survivors_name_the_stage(stages: int, hows: list[str]) -> None:
    dice = random.Random(stages)
    _all_end([drawn(dice, how, stages) for how in hows])


# Two hundred altogether; both at once take half the time.
@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_hundred_failures(seed: int) -> None:
    soak = Soak(seed)
    soak.run(100)
    print(soak.summary())
    assert soak.done == 100
    assert not soak.failed, "\n".join(soak.failed)


class Soak:
    """Cases as `seed` says, one after the other."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.failed: list[str] = []
        self.done = 0
        self._cases: dict[str, int] = defaultdict(int)
        self._seconds: dict[str, list[float]] = defaultdict(list)

    def run(self, count: int, most_s: float = 7000.0) -> None:
        """So many cases, or as many as there is time for."""
        begin_s = time.monotonic()
        while self.done < count and time.monotonic() - begin_s < most_s:
            stages = self._dice.randint(2, 4)
            # A world lasts until a rank of it is killed.
            world = World(stages, {}, ("torch",))
            try:
                for how in [*["raise", "stop"] * 3, "kill"][: count - self.done]:
                    if not self._right(world, drawn(self._dice, how, stages)):
                        break
            finally:
                world.end()

    def _right(self, world: World, case: Case) -> bool:
        begin_s = time.monotonic()
        heard = let_happen(world, case)
        self.done += 1
        self._cases[case.how] += 1
        self._seconds[case.how] += heard.seconds
        if heard.problems:
            self.failed += [str(case), *heard.problems]
        print(f"{self.done} {time.monotonic() - begin_s:.1f} s {case} {heard}", flush=True)
        return not heard.problems

    def summary(self) -> str:
        """A line for each kind of failure."""
        return "\n".join(
            f"{how}: {self._cases[how]} cases, {len(seconds)} survivors heard after {statistics.median(seconds):.2f} s "
            f"(median), {max(seconds):.2f} s (most)"
            for how, seconds in sorted(self._seconds.items())
            if seconds
        )
