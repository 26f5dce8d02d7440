"""PACELINE_CHECK_NUMERICS: a NaN of one rank names rank, tensor and step, under every exchange of PyTorch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.arming import TorchSteps, arm
from integration_tests.support.debug import debug
from integration_tests.support.processes import HOROVODRUN, finished, written
from integration_tests.support.ranks import World, ranks, run_ranks

LOG, RAISE = {"PACELINE_CHECK_NUMERICS": "log"}, {"PACELINE_CHECK_NUMERICS": "raise"}
BAD_STEP = 4
EXCHANGES: dict[str, dict[str, Any]] = {
    "sync": {},
    "buckets": {"bucket_bytes": 1 << 16},
    "groups": {"groups": 1},
    "pipelined": {"exchange": "pipelined"},
    "partial": {"exchange": "majority"},
    "codec": {"codec": "q8"},
    "split": {"exchange": "split"},
}
# Of what is not submitted by itself: a group's first parameter and the place in it, a bucket's first and the others.
NAMES = {"groups": "0.weight_3of4", "split": "1.bias+3"}


def _train(rank: int, size: int, kind: str, bad_rank: int, steps: int = 8) -> str:
    """Train until the NaN of `bad_rank` in step BAD_STEP, and return what it raised on this rank."""
    import torch

    import paceline.torch as hvd

    hvd.init()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Linear(30, 3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters(), **EXCHANGES[kind]
    )

    def step(number: int) -> None:
        optimizer.zero_grad()
        loss = model(torch.ones(8, 20)).square().mean()
        if number == BAD_STEP and rank == bad_rank:
            # In the gradient of one weight alone.
            model[1].weight.register_hook(lambda gradient: gradient.masked_fill(torch.eye(3, 30).bool(), float("nan")))
        loss.backward()
        optimizer.step()

    for number in range(1, steps + 1):
        try:
            step(number)
        except ValueError as error:
            return f"{number}: {error}"
    return str(int(hvd.metrics()["paceline_non_finite_gradients_total"]))


def check(text: str, rank: int, step: int, name: str, nans: int) -> None:
    """Assert that an error names them."""
    assert f"rank {rank} expected finite numbers, found {nans} NaN and 0 infinite" in text, text
    assert f"in step {step}," in text and name in text and "PACELINE_CHECK_NUMERICS=no" in text, text


@pytest.mark.parametrize("kind", EXCHANGES)
@pytest.mark.parametrize("size", [2, 3])
def test_a_nan_raises_on_its_rank(size: int, kind: str) -> None:
    bad = size - 1
    world = World(size, RAISE, ("torch",))
    try:
        world.send(__name__, "_train", (kind, bad))
        answers = world.answers(60, without=set(range(size)) - {bad})  # the others wait for it
    finally:
        world.end()
    found, text = answers[bad]
    assert found == "ok", answers
    assert text.startswith(f"{BAD_STEP}: "), text
    check(text, bad, BAD_STEP, NAMES.get(kind, "1.weight"), 3)


def test_ranks_are_notified_of_the_failure(tmp_path: Path) -> None:
    done = finished(*HOROVODRUN, written(tmp_path, SCRIPT), env=RAISE)
    assert done.returncode != 0
    check(done.stderr, 1, 3, "allreduce.gradient", 1)
    assert "rank 0 heard" in done.stdout


SCRIPT = """
import horovod.torch as hvd
import torch
hvd.init()
for step in range(1, 6):
    tensor = torch.ones(10)
    if step == 3 and hvd.rank() == 1:
        tensor[4] = float("nan")
    try:
        hvd.allreduce(tensor, name="gradient")
    except hvd.HorovodInternalError as error:
        print("rank", hvd.rank(), "heard", str(error).replace(chr(10), " "))
        raise SystemExit(3)
"""


@pytest.mark.parametrize("kind", EXCHANGES)
def test_logged_gradients_are_counted_and_training_goes_on(kind: str) -> None:
    good, bad = run_ranks(_train, 2, kind, 1, env=LOG, fresh=True)
    assert int(bad) >= 5, "the hook stays, so every step from the fourth on"
    # Weights are NaN everywhere after the first update with it.
    assert good == "0" or int(good) > 0


def _logs(rank: int, size: int, folder: str) -> int:
    import horovod.torch as hvd
    import torch

    log = os.open(f"{folder}/log.{rank}", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 2)
    hvd.init()
    for dtype in (torch.float16, torch.float32, torch.float64, torch.int32):
        for _ in range(3):
            tensor = torch.ones(10, dtype=dtype)
            if rank == 1 and dtype.is_floating_point:
                tensor[:2] = float("inf")
                tensor[2] = float("nan")
            hvd.allreduce(tensor, name=f"of.{dtype}")
    # What is no sum, and what has no name.
    hvd.allreduce(torch.full((3,), float("inf")), op=hvd.Min, name="least")
    for _ in range(3):
        hvd.allreduce(torch.full((3,), float("inf")) if rank == 1 else torch.ones(3))
    import paceline.torch as ours

    return int(ours.metrics()["paceline_non_finite_gradients_total"])


def test_one_line_for_each_tensor(tmp_path: Path) -> None:
    assert run_ranks(_logs, 2, str(tmp_path), env=LOG, fresh=True) == [0, 12]
    assert "finite" not in (tmp_path / "log.0").read_text()
    lines = [line for line in (tmp_path / "log.1").read_text().splitlines() if "expected finite numbers" in line]
    assert len(lines) == 4, lines
    for line, name in zip(lines, ("float16", "float32", "float64"), strict=False):
        assert f"torch.{name}: rank 1" in line and "found 1 NaN and 2 infinite of 10 elements in step 1," in line
    assert "noname" in lines[3]


@ranks(2, 3, env={**RAISE, **debug(armed=True)}, hvd="horovod.torch", fresh=True)
def test_armed_steps(rank: int, size: int, hvd: Any) -> None:
    import torch

    steps = TorchSteps(rank, size, {f"numerics.{n}": 100 for n in range(4)})
    _, step = arm(steps.step, "numerics.", (2, 2))
    for last in range(step, step + 5):
        steps.step(last)
    if rank == 0:
        with pytest.raises(ValueError, match="finite") as caught:
            hvd.allreduce_async_(torch.full((100,), float("nan")), name="numerics.0", op=hvd.Sum)
        # The step of a name counts from the first one, armed or not.
        check(str(caught.value), 0, step + 6, "numerics.0", 100)
