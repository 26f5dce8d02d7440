"""A requested exchange is used, or a line reports that it is not: PACELINE_EXCHANGE and scripts of Horovod."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from integration_tests.support.more import more
from integration_tests.support.processes import HOROVODRUN, finished, written

# Weights of the same model under exchanges: with K = 2 the second update is left out, the others are a step late.
IN_STEP = "weights [1.0, 0.9, 0.81, 0.729, 0.6561, 0.59049]"
PIPELINED = "weights [1.0, 1.0, 0.9, 0.8, 0.71, 0.63]"
WARMED_UP = "weights [1.0, 0.9, 0.81, 0.81, 0.729, 0.648]"

TORCH = """
import horovod.torch as hvd
import torch
from horovod.torch import DistributedOptimizer, broadcast_optimizer_state
from horovod.torch.optimizer import DistributedOptimizer as where_it_is_defined

hvd.init()
w = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
wrap = {wrap}
optimizer = wrap(torch.optim.SGD([w], lr=0.1), named_parameters=[("w", w)])
broadcast_optimizer_state(optimizer, root_rank=0)
values = []
for step in range(6):
    values.append(round(w.item(), 6))
    optimizer.zero_grad()
    (w ** 2 / 2).sum().backward()
    optimizer.step()
print("weights", values, flush=True)
"""

TAPE = """
import horovod.tensorflow as hvd
import keras
import tensorflow as tf
from horovod.tensorflow import DistributedGradientTape

hvd.init()
w = tf.Variable([1.0], dtype=tf.float64)
optimizer = keras.optimizers.SGD(0.1)

@{function}
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w ** 2 / 2)
    optimizer.apply_gradients(zip(DistributedGradientTape(tape).gradient(loss, [w]), [w]))

values = []
for step in range(6):
    values.append(round(float(w[0]), 6))
    train()
print("weights", values, flush=True)
"""

KERAS_BEFORE_INIT = """
import horovod.tensorflow.keras as hvd
import keras
import tensorflow as tf
from horovod.tensorflow.keras import DistributedOptimizer

optimizer = DistributedOptimizer(keras.optimizers.SGD(0.1))
hvd.init()
w = tf.Variable([1.0], dtype=tf.float64)
values = []
for step in range(6):
    values.append(round(float(w[0]), 6))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w ** 2 / 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, [w]), [w]))
print("weights", values, flush=True)
"""

KERAS_FIT = """
import horovod.tensorflow.keras as hvd
import keras
import numpy as np

hvd.init()
model = keras.Sequential([keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), lambda _, found: keras.ops.sum(found**2) / 2)
values = []
class Watch(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        values.append(round(float(model.get_weights()[0].item()) if model.built else 1.0, 6))
model.fit(np.ones((6, 1)), np.zeros((6, 1)), batch_size=1, verbose=0, callbacks=[Watch()])
print("weights", values, flush=True)
"""

OLD_OPTIMIZER = """
import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init()
hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
print("weights", flush=True)
"""

BY_HAND = """
import horovod.torch as hvd
import torch
hvd.init()
hvd.allreduce(torch.ones(2), name="gradient")
"""

ADASUM = """
import paceline.torch as hvd
import torch
hvd.init()
hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), op=hvd.Adasum)
"""


def started(words: Sequence[str], folder: Path, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return finished(*words, written(folder, text), without=("PACELINE_", "SLURM_"), env=variables)


def horovodrun(folder: Path, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return started(HOROVODRUN, folder, text, **variables)


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of Paceline, whichever rank wrote them."""
    return [line.partition("Paceline: ")[2] for line in done.stderr.splitlines() if "Paceline: " in line]


@pytest.mark.parametrize(
    ("text", "who"),
    [
        more(TORCH.format(wrap="DistributedOptimizer"), "w", id="torch, name taken before init"),
        pytest.param(TORCH.format(wrap="where_it_is_defined"), "w", id="torch, where it is defined"),
        more(TORCH.format(wrap="hvd.DistributedOptimizer"), "w", id="torch, as ever"),
        more(TAPE.format(function="(lambda one: one)"), "DistributedGradientTape", id="tape, name taken before init"),
        more(TAPE.format(function="tf.function"), "DistributedGradientTape", id="tape in a function"),
        more(KERAS_BEFORE_INIT, "DistributedSGD", id="keras, wrapped before init"),
        more(KERAS_FIT, "DistributedSGD", id="keras, fit"),
    ],
)
def test_exchange_is_used_however_the_name_was_taken_and_one_rank_says_so(tmp_path: Path, text: str, who: str) -> None:
    done = horovodrun(tmp_path, text, PACELINE_EXCHANGE="pipelined")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(PIPELINED) == 2, done.stdout
    line, end = said(done)
    assert end.startswith("at the end of ") and " (pipelined) 1 more update was made" in end
    assert re.match(r"exchange=Pipelined\(k=2, .*\) begins for ", line)
    assert who in line
    assert line.endswith(": 1 gradients an update, 2 ranks.")


def test_options_of_the_exchange_are_used(tmp_path: Path) -> None:
    script, variables = TORCH.format(wrap="hvd.DistributedOptimizer"), {"PACELINE_PIPELINED_WARMUP_STEPS": "2"}
    done = horovodrun(tmp_path, script, PACELINE_EXCHANGE="pipelined", **variables)
    assert done.stdout.count(WARMED_UP) == 2, done.stderr


def test_optimizers_that_cannot_leave_out_an_update_are_refused(tmp_path: Path) -> None:
    done = horovodrun(tmp_path, OLD_OPTIMIZER, PACELINE_EXCHANGE="pipelined")
    assert done.returncode != 0
    assert "GradientDescentOptimizer is not an optimizer of Keras 3" in done.stderr
    assert "weights" not in done.stdout


def test_an_unused_exchange_is_reported_at_shutdown(tmp_path: Path) -> None:
    done = horovodrun(tmp_path, BY_HAND, PACELINE_EXCHANGE="majority")
    assert done.returncode == 0, done.stderr
    (line,) = said(done)
    assert line.startswith("PACELINE_EXCHANGE=majority had no effect: no optimizer and no tape was wrapped")
    assert "hvd.DistributedOptimizer" in line


@pytest.mark.more
def test_who_asked_for_none_or_failed_before_it_was_used_hears_nothing(tmp_path: Path) -> None:
    assert said(horovodrun(tmp_path, BY_HAND, PACELINE_EXCHANGE="sync")) == []
    failed = horovodrun(tmp_path, BY_HAND + "raise SystemError\n", PACELINE_EXCHANGE="majority")
    assert failed.returncode != 0
    assert said(failed) == []


@pytest.mark.more
def test_options_of_another_exchange_are_named(tmp_path: Path) -> None:
    done = horovodrun(
        tmp_path,
        TORCH.format(wrap="DistributedOptimizer"),
        PACELINE_EXCHANGE="sync",
        PACELINE_PIPELINED_K="4",
        PACELINE_SYNC_EVERY="5",
    )
    assert done.stdout.count(IN_STEP) == 2, done.stderr
    k, every = said(done)
    assert k.startswith("PACELINE_PIPELINED_K=4 has no effect: it belongs to PACELINE_EXCHANGE=pipelined (--exchange)")
    assert k.endswith(", and that is sync.")
    assert every.startswith("PACELINE_SYNC_EVERY=5 has no effect: it belongs to PACELINE_EXCHANGE=majority or solo or")


PIPELINE = """
import torch
import paceline.torch as hvd
hvd.init()
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
make = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
pipeline = hvd.Pipeline(model, make, torch.nn.functional.mse_loss, 2)
pipeline.step(torch.ones(4, 2), torch.ones(4, 2))
pipeline.drain()
hvd.barrier()
"""


@pytest.mark.more
def test_options_that_a_pipeline_does_not_use_are_named(tmp_path: Path) -> None:
    variables = {"CODEC": "q8", "EXCHANGE": "pipelined", "RECORD": str(tmp_path / "trace.json")}
    done = horovodrun(tmp_path, PIPELINE, **{f"PACELINE_{name}": value for name, value in variables.items()})
    assert done.returncode == 0, done.stderr
    *_, record = lines = [line for line in said(done) if "has no effect on hvd.Pipeline" in line]
    assert [line.partition("=")[0] for line in lines] == [f"PACELINE_{name}" for name in variables]
    assert record.endswith("without replicas=: its stages send activations, and average no gradients.")
    assert not any("Wrap the optimizer" in line for line in said(done))


@pytest.mark.more
def test_adasum_is_refused_with_another_exchange(tmp_path: Path) -> None:
    done = horovodrun(tmp_path, ADASUM, PACELINE_EXCHANGE="pipelined")
    assert done.returncode != 0
    assert "op=hvd.Adasum was given together with the exchange pipelined" in done.stderr


# The wrong launcher: every process is the only rank of its world.

ALONE = """
import horovod.torch as hvd
import paceline.torch
hvd.init()
print("size", hvd.size())
"""


@pytest.mark.parametrize(
    ("words", "launcher", "variable"),
    [
        (["-m", "torch.distributed.run", "--nproc-per-node", "2"], "torchrun", "WORLD_SIZE=2"),
        pytest.param(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"],
            "mpirun",
            "OMPI_COMM_WORLD_SIZE=2",
            marks=pytest.mark.needs("mpirun"),
        ),
    ],
    ids=["torchrun", "mpirun"],
)
def test_another_launchers_processes_say_that_they_are_alone(
    tmp_path: Path, words: list[str], launcher: str, variable: str
) -> None:
    command = [sys.executable, *words] if words[0] == "-m" else [*words, sys.executable]
    done = started(command, tmp_path, ALONE)
    assert done.stdout.count("size 1") == 2, done.stderr
    (line,) = said(done)
    assert line.startswith(f"{variable}, so {launcher} started 2 processes, but Horovod knows of none but itself")
    assert "`paceline run -np 2 python train.py`" in line


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, ["SLURM_NTASKS=4, so srun started 4 processes"]),
        ({"PMI_SIZE": "3", "PMI_RANK": "0"}, ["PMI_SIZE=3, so mpiexec started 3 processes"]),
        # Only one of the processes reports it; a step of one task in a larger job is fine; a shell's leftovers.
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "3"}, []),
        ({"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"}, []),
        ({"WORLD_SIZE": "1", "RANK": "0"}, []),
        ({"WORLD_SIZE": "2", "HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"}, []),
        ({"WORLD_SIZE": "many"}, []),
    ],
)
def test_what_launchers_leave_in_the_environment_is_compared(variables: dict[str, str], found: list[str]) -> None:
    from paceline.launchers import alone_by_mistake

    line = alone_by_mistake(variables)
    assert [line.partition(",")[0] + "," + line.partition(",")[2].partition(",")[0]] * bool(line) == found


@pytest.mark.more
def test_two_ranks_of_horovodrun_have_nothing_to_say(tmp_path: Path) -> None:
    done = horovodrun(tmp_path, ALONE, WORLD_SIZE="2")
    assert done.stdout.count("size 2") == 2
    assert said(done) == []
