"""Unmodified elastic scripts under every exchange: a lost rank ends a world, not the job."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from integration_tests.support.more import more
from integration_tests.support.processes import finished, written

# A rank of the host 127.0.0.1 dies once, in a step and at a moment that the test chooses.
BEGIN = """
import os, pathlib, signal, sys, time
died, wanted, moment = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def pass_by(step, place):
    if os.environ["HOROVOD_HOSTNAME"] == "127.0.0.1" and (step, place) == (wanted, moment) and not died.exists():
        died.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
"""

TORCH = """
import horovod.torch as hvd
import torch
hvd.init()
model = torch.nn.Linear(3, 1, bias=False).double()
w = model.weight
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([w], lr=0.01, momentum=0.9), model.named_parameters())

@hvd.elastic.run
def train(state):
    while state.step < 30:
        optimizer.zero_grad()
        pass_by(state.step, "before")
        (w * (hvd.rank() + 1.0)).sum().backward()
        pass_by(state.step, "backward")
        optimizer.step()
        pass_by(state.step, "after")
        time.sleep(0.005 * (1 + hvd.rank()))
        state.step += 1
        if state.step % 5 == 0:
            state.commit()
            pass_by(state.step - 1, "commit")

train(hvd.elastic.TorchState(model, optimizer, step=0))
rank, size = hvd.rank(), hvd.size()
hvd.shutdown()
print("ended", rank, size, w[0, 0].item(), flush=True)
"""

KERAS = """
import horovod.tensorflow.keras as hvd
import keras
import numpy as np
keras.config.set_floatx("float64")
hvd.init()
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01, momentum=0.9)), lambda _, found: keras.ops.sum(found))
class Moments(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        pass_by(10 * state.epoch + batch, "before")
    def on_train_batch_end(self, batch, logs=None):
        for place in ("backward", "after", "commit"):
            pass_by(10 * state.epoch + state.batch, place)
        time.sleep(0.005 * (1 + hvd.rank()))

state = hvd.elastic.KerasState(model, batch=0, epoch=0)

@hvd.elastic.run
def train(state):
    x = np.full((10, 3), hvd.rank() + 1.0)
    model.fit(
        x, x[:, :1], batch_size=1, epochs=3 - state.epoch, shuffle=False, verbose=0,
        callbacks=[
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            Moments(),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=5),
        ],
    )

train(state)
rank, size = hvd.rank(), hvd.size()
hvd.shutdown()
print("ended", rank, size, float(model.get_weights()[0][0, 0]), flush=True)
"""

SCRIPTS = {"torch": TORCH, "keras": KERAS}
EXCHANGES = ("sync", "majority", "solo", "local", "pipelined")
MOMENTS = ("before", "backward", "after", "commit")
KILLS = 20
PAIRS = [*((framework, exchange) for framework in SCRIPTS for exchange in EXCHANGES), ("torch", "split")]
TESTED = [("torch", "majority", 12, "backward")]
CASES = [(*pair, 12, "after" if "split" in pair else "backward") for pair in PAIRS]


def _kills() -> list[tuple[str, str, int, str]]:
    """Steps and moments for `make soak`: a commit follows each fifth step; the others may have ended after the last."""
    drawn = random.Random(30)
    found = []
    for framework, exchange in PAIRS:
        for number in range(KILLS):
            moment = MOMENTS[number % len(MOMENTS)]
            step = drawn.randrange(4, 29, 5) if moment == "commit" else drawn.randrange(30)
            found.append((framework, exchange, step, moment))
    return found


def _go_on(folder: Path, framework: str, exchange: str, step: int, moment: str) -> None:
    script, hosts = written(folder, BEGIN + SCRIPTS[framework]), folder / "hosts.sh"
    hosts.write_text("#!/bin/sh\necho localhost:2\necho 127.0.0.1:1\n")
    hosts.chmod(0o755)
    words = [sys.executable, "-m", "horovod.runner.launch", "-np", "3", "--min-np", "2"]
    words += ["--host-discovery-script", str(hosts), "--network-interfaces", "lo"]
    words += [sys.executable, str(script), str(folder / "died"), str(step), moment]
    done = finished(*words, env={"PACELINE_EXCHANGE": exchange})
    assert (folder / "died").exists(), done.stderr
    assert done.returncode == 0, done.stderr
    ended = [line.split()[1:] for line in done.stdout.splitlines() if "ended" in line]
    assert sorted(rank for rank, *_ in ended) == ["0", "1"], done.stdout
    assert {size for _, size, _ in ended} == {"2"}
    assert len({weight for *_, weight in ended}) == 1, done.stdout


@pytest.mark.parametrize(
    "case", [case if case in TESTED else more(case) for case in CASES], ids=lambda case: "-".join(map(str, case))
)
def test_the_others_go_on_when_a_rank_is_killed(tmp_path: Path, case: tuple[str, str, int, str]) -> None:
    _go_on(tmp_path, *case)


@pytest.mark.soak
@pytest.mark.parametrize("case", _kills(), ids=lambda case: "-".join(map(str, case)))
def test_the_others_go_on_whenever_a_rank_is_killed(tmp_path: Path, case: tuple[str, str, int, str]) -> None:
    _go_on(tmp_path, *case)
