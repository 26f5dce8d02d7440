"""hvd.metrics() and the files of PACELINE_METRICS, of scripts as they are: the same numbers, from all frameworks."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.arming import ARMED, TorchSteps, arm, meet
from integration_tests.support.debug import debug
from integration_tests.support.processes import HOROVODRUN, finished, written
from integration_tests.support.ranks import ranks, run_ranks

STEPS = 40
LINE = re.compile(r"(\w+)\{(.*)\} (\S+)")


def read(path: Path) -> dict[str, float]:
    """The samples of a file without labels of their own."""
    found = [LINE.fullmatch(line) for line in path.read_text().splitlines() if not line.startswith("#")]
    assert all(found), path.read_text()
    return {one[1]: float(one[3]) for one in found if one is not None and "state=" not in one[2]}


def train(rank: int, size: int, hvd: Any, steps: int, exchange: str, pause_s: float = 0.01) -> None:
    import torch

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Linear(30, 3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters(f"metrics.{exchange}"), exchange=exchange
    )
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 20)).square().mean().backward()
        time.sleep(pause_s)
        optimizer.step()
    optimizer.drain()


def _writes(rank: int, size: int, folder: str) -> tuple[dict[str, float], float]:
    os.environ["PACELINE_METRICS"] = folder
    import paceline.torch as hvd

    hvd.init()
    train(rank, size, hvd, STEPS, "sync")
    path = Path(folder) / f"paceline_rank{rank}.prom"
    seen = time.monotonic() + 20
    while (not path.exists() or read(path).get("paceline_steps_total", 0) < STEPS) and time.monotonic() < seen:
        time.sleep(0.1)
    during = read(path)["paceline_steps_total"]
    numbers = hvd.metrics()
    hvd.shutdown()
    final = read(path)
    assert final.keys() == numbers.keys()
    # A second world, of another file's life.
    path.unlink()
    hvd.init()
    train(rank, size, hvd, 3, "pipelined")
    hvd.shutdown()
    again = path.read_text()
    assert 'exchange="pipelined,sync"' in again and f'rank="{rank}",size="{size}",library="torch"' in again
    return final, during


@pytest.mark.parametrize("size", [2, 3])
def test_files_have_the_numbers_of_hvd_metrics(size: int, tmp_path: Path) -> None:
    for final, during in run_ranks(_writes, size, str(tmp_path), env=debug(metrics_interval_s=1), fresh=True):
        assert STEPS <= during <= final["paceline_steps_total"] <= STEPS + 3
        assert 0.01 < final["paceline_step_seconds"] < 1
        assert 0 <= final["paceline_exposed_seconds"] < final["paceline_step_seconds"]
        assert final["paceline_messages_total"] >= STEPS
        assert final["paceline_bytes_total"] >= STEPS * 4 * (20 * 30 + 30 + 30 * 3 + 3)
        assert final["paceline_non_finite_gradients_total"] == final["paceline_late_rounds_total"] == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"paceline_rank{rank}.prom" for rank in range(size)]


@ranks(2, env=ARMED, hvd="paceline.torch", fresh=True)
def test_armed_steps_are_counted(rank: int, size: int, hvd: Any) -> None:
    before = hvd.metrics()
    assert before["paceline_armed_steps_total"] == before["paceline_steps_total"] == 0
    assert "paceline_step_seconds" not in before
    steps = TorchSteps(rank, size, {f"metrics.{n}": 100 for n in range(4)})
    hand, step = arm(steps.step, "metrics.", (2, 2))
    for last in range(step, step + 10):
        steps.step(last)
    meet()  # the last step has ended, too
    found = hvd.metrics()
    assert found["paceline_armed_steps_total"] >= 10, found
    assert found["paceline_step_seconds"] > 0, found
    assert found["paceline_steps_total"] > before["paceline_steps_total"] + 10, found
    hand.end()


@ranks(2, hvd="paceline.torch")
def test_late_rounds_are_counted(rank: int, size: int, hvd: Any) -> None:
    train(rank, size, hvd, 20, "solo", pause_s=0.001 + 0.03 * rank)
    found = hvd.metrics()
    assert found["paceline_partial_rounds_total"] > 0
    assert found["paceline_late_rounds_total"] == hvd.exchange_stats().late
    if rank == 1:
        assert found["paceline_late_rounds_total"] > 0


SCRIPTS = {
    "torch": """
import horovod.torch as hvd
import torch
hvd.init()
for step in range(30):
    hvd.allreduce(torch.ones(1000), name="gradient")
""",
    "tensorflow": """
import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init()
for step in range(30):
    hvd.allreduce(tf.ones(1000), name="gradient")
""",
    "keras": """
import horovod.keras as hvd
import keras
import numpy
hvd.init()
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
model.fit(numpy.ones((60, 3)), numpy.ones((60, 2)), batch_size=2, verbose=0)
""",
}


@pytest.mark.parametrize("framework", SCRIPTS)
def test_scripts_write_files_without_changes(framework: str, tmp_path: Path) -> None:
    env = {"PACELINE_METRICS": str(tmp_path), "KERAS_BACKEND": "tensorflow"}
    done = finished(*HOROVODRUN, written(tmp_path, SCRIPTS[framework]), env=env)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        path = tmp_path / f"paceline_rank{rank}.prom"
        found = read(path)
        assert 25 <= found["paceline_steps_total"] <= 35 and found["paceline_step_seconds"] > 0
        library = "torch" if framework == "torch" else "tensorflow"
        assert f'rank="{rank}",size="2",library="{library}",exchange="sync"' in path.read_text()


def test_a_missing_folder_is_reported_by_each_rank_and_training_goes_on(tmp_path: Path) -> None:
    env = {"PACELINE_METRICS": str(tmp_path / "absent")}
    done = finished(*HOROVODRUN, written(tmp_path, SCRIPTS["torch"]), env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("expected to write its metrics to") == 2, done.stderr
