"""Scripts that know nothing of Paceline: `PACELINE_EXCHANGE=pipelined horovodrun -np 2 python script.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.support.more import more

TORCH = """
import horovod.torch as hvd
import torch

hvd.init()
w = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([w], lr=0.1), named_parameters=[("w", w)])
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
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

hvd.init()
w = tf.Variable([1.0], dtype=tf.float64)
optimizer = keras.optimizers.SGD(0.1)

@tf.function
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w ** 2 / 2)
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, [w]), [w]))

values = []
for step in range(6):
    values.append(round(float(w[0]), 6))
    train()
print("weights", values, flush=True)
"""

KERAS = """
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

OLD = """
import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init()
hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
print("weights", flush=True)
"""


def _horovodrun(folder: Path, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(text)
    plain = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    return subprocess.run(
        [str(Path(sys.executable).parent / "horovodrun"), "-np", "2", sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **plain, **variables},
    )


def test_one_variable_pipelines_a_torch_script(tmp_path: Path) -> None:
    done = _horovodrun(tmp_path, TORCH, PACELINE_EXCHANGE="pipelined")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("weights [1.0, 1.0, 0.9, 0.8, 0.71, 0.63]") == 2
    done = _horovodrun(tmp_path, TORCH, PACELINE_EXCHANGE="pipelined", PACELINE_PIPELINED_WARMUP_STEPS="2")
    assert done.stdout.count("weights [1.0, 0.9, 0.81, 0.81, 0.729, 0.648]") == 2


@pytest.mark.parametrize("text", [more(TAPE, id="tape"), more(KERAS, id="keras")])
def test_one_variable_pipelines_a_tensorflow_script(tmp_path: Path, text: str) -> None:
    done = _horovodrun(tmp_path, text, PACELINE_EXCHANGE="pipelined")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("weights [1.0, 1.0, 0.9, 0.8, 0.71, 0.63]") == 2, done.stdout


def test_optimizers_that_cannot_leave_out_an_update_are_refused(tmp_path: Path) -> None:
    done = _horovodrun(tmp_path, OLD, PACELINE_EXCHANGE="pipelined")
    assert done.returncode != 0
    assert "GradientDescentOptimizer is no optimizer of Keras 3" in done.stderr
    assert "weights" not in done.stdout
