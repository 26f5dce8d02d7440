"""A rank dies: every other rank gets an error at once that names it, in any operation, and can continue in a new world.

Patch dead-rank. In Horovod 0.28.1 a rank whose background thread has failed keeps its connections: the contexts of
process sets (the global one included) are never marked enabled, so Finalize() ignores them. And Gloo does not wake a
rank that waits for the rest of a message that has begun. Survivors waited for Gloo's 30 s, and no error named the dead
rank. `python -m integration_tests.kills` measures how soon survivors get the error now.

All of it also with ranks that sleep until an event occurs (wake=events).
"""

from __future__ import annotations

import itertools
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.kills import EXCHANGES, kill, kill_in
from integration_tests.support.deaths import assert_named
from integration_tests.support.debug import debug
from integration_tests.support.more import more
from integration_tests.support.ranks import World

SIZE = 3


def _reduce_large(rank: int, size: int, folder: str) -> tuple[float, str]:
    """A message is in flight nearly all the time."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    part = torch.ones(8_000_001)
    hvd.allreduce(part, name="large")
    (Path(folder) / str(rank)).touch()
    try:
        while True:
            hvd.allreduce(part, name="large")
    except hvd.HorovodInternalError as error:
        return time.monotonic(), str(error)


def _call_later(rank: int, size: int, folder: str) -> tuple[float, str]:
    """No rank is waiting when one dies; a process that the dead rank has forked keeps its connections open."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    hvd.allreduce(torch.ones(3), name="later")
    if rank == 2 and os.fork() == 0:
        while True:
            signal.pause()  # ended with its process group
    (Path(folder) / str(rank)).touch()
    time.sleep(1.5)
    try:
        for _ in range(1000):
            hvd.allreduce(torch.ones(3))
    except hvd.HorovodInternalError as error:
        return time.monotonic(), str(error)
    raise AssertionError(f"rank {rank} heard of no death")


def _hand_in_after(rank: int, size: int, folder: str) -> tuple[float, str]:
    """Horovod releases many tensors, as their last owner, while new operations are submitted.

    Freeing a tensor takes the interpreter's lock, which the submitting thread holds.
    """
    import horovod.torch as hvd
    import torch

    hvd.init()
    hvd.allreduce(torch.ones(3), name="before")
    (Path(folder) / str(rank)).touch()
    while True:
        handles, errors = [], []
        try:
            for number in range(500):
                handles.append(hvd.allreduce_async(torch.ones(3), name=f"{number}"))
        except hvd.HorovodInternalError as error:  # the rank died while this one was submitting
            errors.append((time.monotonic(), str(error)))
        for handle in handles:
            try:
                hvd.synchronize(handle)
            except hvd.HorovodInternalError as error:
                errors.append((time.monotonic(), str(error)))
                with pytest.raises(hvd.HorovodInternalError):
                    hvd.allreduce(torch.ones(3), name="after")
        if errors:
            return errors[0]


def _go_on(rank: int, size: int, folder: str) -> tuple[float, str]:
    """Elastic training on a small scale: after the error the survivors form a new world."""
    import horovod.torch as hvd
    import torch

    everybody_but_zero = hvd.ProcessSet([1, 2])
    hvd.init(process_sets=[everybody_but_zero])
    hvd.allreduce(torch.ones(3), name="before")
    (Path(folder) / str(rank)).touch()
    try:
        while True:
            if rank > 0:
                hvd.allreduce(torch.ones(3), name="set", process_set=everybody_but_zero)
            hvd.allreduce(torch.ones(3), name="all")
    except hvd.HorovodInternalError as error:
        heard_s, text = time.monotonic(), str(error)
    with pytest.raises(hvd.HorovodInternalError, match="Rank 0 died"):
        hvd.allreduce(torch.ones(3), process_set=everybody_but_zero)
    hvd.shutdown()
    for kind in ("", "LOCAL_"):
        os.environ[f"HOROVOD_{kind}RANK"] = str(rank - 1)
        os.environ[f"HOROVOD_{kind}SIZE"] = str(size - 1)
    alone = hvd.ProcessSet([0])
    hvd.init(process_sets=[alone])
    assert hvd.size() == size - 1
    assert hvd.allreduce(torch.tensor(rank), op=hvd.Sum).item() == 3
    if rank == 1:
        assert hvd.allgather(torch.tensor([rank]), process_set=alone).tolist() == [1]
    hvd.barrier()  # or one would shut down what the other still uses
    hvd.shutdown()
    return heard_s, text


def _sleep(rank: int, size: int, waits: bool, folder: str) -> tuple[float, str]:
    """All ranks are asleep when one dies; or a survivor waits for an operation that others do not submit."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    hvd.allreduce(torch.ones(3), name="before")
    time.sleep(0.3)
    (Path(folder) / str(rank)).touch()
    if not (waits and rank == 0):
        time.sleep(1.5)
    try:
        hvd.allreduce(torch.ones(3), name="after")
    except hvd.HorovodInternalError as error:
        return time.monotonic(), str(error)
    raise AssertionError(f"rank {rank} heard of no death")


# How ranks wake -> variables.
WAKES: dict[str, dict[str, str]] = {"default": {}, "events": debug(wake="events")}
HEARS_S = 5.0
PATCHED = pytest.mark.patch("dead-rank")


@pytest.mark.parametrize(
    ("exchange", "victim", "wake"),
    [
        *(pytest.param(*one, "default", marks=PATCHED) for one in zip(EXCHANGES, itertools.cycle(range(SIZE)))),
        *((*one, "events") for one in zip(EXCHANGES, range(SIZE))),
    ],
)
def test_survivors_of_training_name_the_dead_rank(exchange: str, victim: int, wake: str) -> None:
    assert_named(kill(exchange, victim, moment_s=0.1 * (victim + 1), env=WAKES[wake]), victim, SIZE - 1)


@pytest.mark.parametrize(
    ("body", "args", "victim", "moment_s", "wake"),
    [
        pytest.param(_reduce_large, (), 1, 0.3, "default", marks=PATCHED),
        pytest.param(_call_later, (), 2, 0.1, "default", marks=PATCHED),
        pytest.param(_hand_in_after, (), 1, 0.2, "default", marks=PATCHED),
        pytest.param(_go_on, (), 0, 0.1, "default", marks=pytest.mark.patch("dead-rank", "process-set-failures")),
        (_reduce_large, (), 1, 0.2, "events"),
        (_hand_in_after, (), 2, 0.2, "events"),
        (_go_on, (), 0, 0.2, "events"),
        *((_sleep, (waits,), victim, 0.3, "events") for waits in (False, True) for victim in (0, 2)),
    ],
)
def test_survivors_name_the_dead_rank(
    body: Callable[..., tuple[float, str]], args: tuple[Any, ...], victim: int, moment_s: float, wake: str
) -> None:
    heard = kill_in(body, args, victim, moment_s, SIZE, WAKES[wake])
    assert_named(heard, victim, SIZE - 1, HEARS_S if body is _sleep else math.inf)


def _stop(rank: int, size: int, victim: int) -> str:
    import horovod.torch as hvd
    import torch

    hvd.init()
    hvd.allreduce(torch.ones(3), name="before")
    if rank == victim:
        os.kill(os.getpid(), signal.SIGSTOP)
    with pytest.raises(hvd.HorovodInternalError) as raised:
        hvd.allreduce(torch.ones(3), name="after")
    return str(raised.value)


@pytest.mark.parametrize(
    ("victim", "wake"),
    [
        pytest.param(0, "default", marks=[pytest.mark.more, PATCHED]),
        pytest.param(2, "default", marks=PATCHED),
        (0, "events"),
        more(2, "events"),
    ],
)
def test_a_rank_that_stops_is_named_after_the_limit(victim: int, wake: str) -> None:
    world = World(SIZE, {**WAKES[wake], "HOROVOD_GLOO_TIMEOUT_SECONDS": "3"}, ("torch",))
    try:
        world.send(_stop.__module__, _stop.__qualname__, (victim,))
        answers = world.answers(60, grace_s=60, without=[victim])
        assert len(answers) == SIZE - 1, world.report(answers)
        for kind, text in answers.values():
            assert kind == "ok", text
            assert f"Rank {victim} (process " in text and ") does not answer: it has stopped" in text, text
    finally:
        world.end()
