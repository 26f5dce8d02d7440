"""Elastic jobs whose number of ranks changes: ranks join, one is killed, ranks leave; weights are those of one process.

Gradients depend on no weight and plain SGD adds them up, so the final weights show every contribution: that of rank r
is r + 1, and a step of n ranks moves a weight by the mean, (n + 1) / 2.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.elastic_jobs import launcher
from integration_tests.support.more import more
from integration_tests.support.processes import finished, written

RATE = 2.0**-6
STEPS = 30
# From this step on, the hosts; the ranks of 127.0.0.1 are killed, and that host is excluded from then on.
PHASES = {
    0: (("localhost:2",), 2),
    6: (("localhost:2", "127.0.0.1:2"), 4),
    12: (("localhost:2",), 2),
    18: (("localhost:3",), 3),
    24: (("localhost:2",), 2),
}
KILLED_AT = 12
# Ranks are killed after a commit; hosts join and leave between two.
COMMIT_STEPS = 4

BEGIN = f"""
import os, pathlib, signal, sys, time
PHASES, KILLED_AT, STEPS, RATE, COMMIT_STEPS = {PHASES}, {KILLED_AT}, {STEPS}, {RATE}, {COMMIT_STEPS}
hosts, log = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])

def before_step(hvd, state, step):
    # Waits for the ranks of this step; raises what Horovod raises when ranks come and go.
    lines, size = PHASES.get(step, ((), hvd.size()))
    if hvd.size() == size:
        return
    if step == KILLED_AT:
        if os.environ["HOROVOD_HOSTNAME"] == "127.0.0.1":
            os.kill(os.getpid(), signal.SIGKILL)
        return
    if hvd.rank() == 0:
        written = hosts.with_suffix(".new")
        written.write_text("\\n".join(lines) + "\\n")
        written.replace(hosts)
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        time.sleep(0.05)
        state.check_host_updates()
    raise AssertionError((step, hvd.size(), size))

def after_step(hvd, step):
    if hvd.rank() == 0:
        with log.open("a") as file:
            print(step, hvd.size(), file=file)

def ended(hvd, weight):
    rank, size = hvd.rank(), hvd.size()
    hvd.shutdown()
    print("ended", rank, size, weight(), flush=True)
"""

TORCH = """
import horovod.torch as hvd
import torch
hvd.init()
model = torch.nn.Linear(3, 1, bias=False).double()
w = model.weight
torch.nn.init.zeros_(w)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([w], lr=RATE), model.named_parameters())

@hvd.elastic.run
def train(state):
    while state.step < STEPS:
        before_step(hvd, state, state.step)
        optimizer.zero_grad()
        (w * (hvd.rank() + 1.0)).sum().backward()
        optimizer.step()
        after_step(hvd, state.step)
        state.step += 1
        if state.step % COMMIT_STEPS == 0:
            state.commit()

train(hvd.elastic.TorchState(model, optimizer, step=0))
ended(hvd, lambda: w[0, 0].item())
"""

KERAS = """
import horovod.tensorflow.keras as hvd
import keras
import numpy as np
keras.config.set_floatx("float64")
hvd.init()
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(RATE)), lambda _, found: keras.ops.sum(found))

@hvd.elastic.run
def train(state):
    while state.step < STEPS:
        before_step(hvd, state, state.step)
        model.train_on_batch(np.full((1, 3), hvd.rank() + 1.0), np.zeros((1, 1)))
        after_step(hvd, state.step)
        state.step += 1
        if state.step % COMMIT_STEPS == 0:
            state.commit()

train(hvd.elastic.KerasState(model, step=0))
ended(hvd, lambda: float(model.get_weights()[0][0, 0]))
"""

SCRIPTS = {"torch": TORCH, "keras": KERAS}
EXACT = ("sync", "pipelined", "split")
CASES = [
    *((framework, exchange) for framework in SCRIPTS for exchange in ("sync", "pipelined", "majority", "local")),
    ("torch", "split"),
]
TESTED = ("torch", "pipelined")


def size_of(step: int) -> int:
    return max((begin, size) for begin, (_, size) in PHASES.items() if begin <= step)[1]


def marked(case: tuple[str, str]) -> Any:
    return pytest.param(case, marks=pytest.mark.patch("elastic-interrupts")) if case == TESTED else more(case)


@pytest.mark.parametrize("case", [marked(case) for case in CASES], ids="-".join)
def test_weights_show_every_contribution_of_ranks_that_came_and_went(tmp_path: Path, case: tuple[str, str]) -> None:
    framework, exchange = case
    script = written(tmp_path, BEGIN + SCRIPTS[framework])
    log = tmp_path / "log"
    words = launcher(tmp_path, PHASES[0][0], 2, 4, 2)
    words += [sys.executable, str(script), str(tmp_path / "hosts"), str(log)]
    done = finished(*words, env={"PACELINE_EXCHANGE": exchange})
    assert done.returncode == 0, done.stderr
    made = {int(step): int(size) for step, size in map(str.split, log.read_text().splitlines())}
    sizes = [size_of(step) for step in range(STEPS)]
    assert made == dict(enumerate(sizes)), "the ranks of each step"
    ended = [line.split()[-3:] for line in done.stdout.splitlines() if "ended" in line]
    assert sorted(rank for rank, *_ in ended) == ["0", "1"], done.stdout
    assert len({weight for *_, weight in ended}) == 1, done.stdout
    weight = float(ended[0][-1])
    if exchange in EXACT:
        assert weight == -RATE * sum((size + 1) / 2 for size in sizes)
    else:  # late and local contributions of ranks that left are lost with them
        assert -RATE * sum(sizes) < weight < -RATE * len(sizes)
