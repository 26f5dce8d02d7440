"""A rank dies, raises or stops within an armed step: the others get an error, and none waits forever."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from integration_tests.kills import SLOW_CLOSE_MS, kill_in, train_in_steps
from integration_tests.support.arming import ARMED, TIMEOUT_S, TorchSteps, arm, state
from integration_tests.support.deaths import assert_named
from integration_tests.support.more import more
from integration_tests.support.ranks import run_ranks
from integration_tests.support.slow_close import slow_close

SIZE = 3
SIZES = {f"faults.{n}": 1000 + n for n in range(6)}
NAMES = list(SIZES)
GROUPS = (2, 2, 2)
LIMIT_S = 20.0


def _steps_until_a_rank_dies(rank: int, size: int, pause: str, folder: str) -> tuple[float, str]:
    """Where the ranks spend their time: between groups of a step, or in the middle of messages."""
    os.environ |= ARMED
    import horovod.torch as hvd

    hvd.init()
    steps = TorchSteps(rank, size, SIZES)
    _, step = arm(steps.step, "faults.", GROUPS)
    (Path(folder) / str(rank)).touch()
    end_s = time.monotonic() + 60
    try:
        while time.monotonic() < end_s:
            for name in NAMES:
                if pause and name == NAMES[3]:
                    time.sleep(0.05)
                steps.start(name, step)
            for name in NAMES:
                steps.finish(name, step)
            step += 1
    except hvd.HorovodInternalError as error:
        return time.monotonic(), str(error)
    raise TimeoutError(f"rank {rank} heard of no death: {state()}")


@pytest.mark.parametrize(("pause", "victim"), [("between groups", 1), ("", 0), ("between groups", 2)])
def test_survivors_name_the_rank_that_dies(pause: str, victim: int) -> None:
    heard = kill_in(_steps_until_a_rank_dies, (pause,), victim, moment_s=0.2, size=SIZE)
    assert_named(heard, victim, SIZE - 1, LIMIT_S)


@pytest.mark.parametrize(("collective", "victim"), [("ring", 3), more("linear", 3), more("direct", 0), more("auto", 1)])
def test_survivors_hear_while_connections_close_slowly(collective: str, victim: int, tmp_path: Path) -> None:
    """The first group's message is in flight in addition to the armed ones; its owner must answer it."""
    env = {"PACELINE_COLLECTIVE": collective, **ARMED, **slow_close(tmp_path, SLOW_CLOSE_MS)}
    heard = kill_in(train_in_steps, (True,), victim, moment_s=0.3, size=4, env=env)
    assert_named(heard, victim, 4 - 1, LIMIT_S)


def _raises(rank: int, size: int) -> str:
    """One rank raises between groups, reports this when it ends, and leaves the world."""
    import horovod.torch as hvd

    hvd.init()
    steps = TorchSteps(rank, size, SIZES)
    _, step = arm(steps.step, "faults.", GROUPS)
    try:
        for name in NAMES:
            if rank == 1 and name == NAMES[3]:
                steps.finish(NAMES[0], step)  # all ranks have begun the step
                raise ValueError("between groups")
            steps.start(name, step)
        for name in NAMES:
            steps.finish(name, step)
    except ValueError:
        hvd.shutdown()
        return "left"
    except hvd.HorovodInternalError as error:
        return str(error)
    return "finished"


def test_rank_that_raises_between_groups() -> None:
    """No rank waits until Gloo's timeout."""
    said = run_ranks(_raises, SIZE, env=ARMED | {"HOROVOD_GLOO_TIMEOUT_SECONDS": "600"}, fresh=True)
    assert said[1] == "left"
    assert all("Rank 1 could not go on: its script failed: ValueError" in text for text in (said[0], said[2])), said


def _stops(rank: int, size: int) -> None:
    """Wait on rank 1 until the others have aborted the step, then continue."""
    import horovod.torch as hvd

    hvd.init()
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "faults.", GROUPS, timeout_s=TIMEOUT_S)
    for number in range(step, step + 8):
        for name in NAMES:
            if rank == 1 and number == step + 2 and name == NAMES[3]:
                hand.wait(lambda: state().fallbacks == 1)
            steps.start(name, number)
        for name in NAMES:
            steps.finish(name, number)
    hvd.barrier()
    assert state().fallbacks == 1, state()
    assert ("did not come in time" if rank == 1 else "another rank") in state().fallback_reason, state()
    hand.end()


def test_rank_that_stops_between_groups() -> None:
    run_ranks(_stops, SIZE, env=ARMED, fresh=True)


GLOO_TIMEOUT_S = 5  # a busy rank keeps it


def _is_late(rank: int, size: int) -> None:
    """Longer than the transport's limit, under a plan that would wait for a gradient for longer than that, too."""
    import horovod.torch as hvd

    hvd.init()
    steps = TorchSteps(rank, size, SIZES)
    hand, step = arm(steps.step, "faults.", GROUPS, timeout_s=30.0)
    for number in range(step, step + 4):
        for name in NAMES:
            if rank == 1 and number == step + 1 and name == NAMES[3]:
                time.sleep(1.5 * GLOO_TIMEOUT_S)
            steps.start(name, number)
        for name in NAMES:
            steps.finish(name, number)
    hand.end()


def test_late_rank_ends_the_armed_step_before_the_transports_limit() -> None:
    run_ranks(_is_late, SIZE, env=ARMED | {"HOROVOD_GLOO_TIMEOUT_SECONDS": str(GLOO_TIMEOUT_S)}, fresh=True)
