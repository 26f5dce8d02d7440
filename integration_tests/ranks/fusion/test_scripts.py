"""Scripts without any call of Paceline: `PACELINE_FUSION=... horovodrun -np 2 python script.py`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from integration_tests.support.debug import debug
from integration_tests.support.more import first_of, more
from integration_tests.support.processes import HOROVODRUN, finished, written

TORCH = """
import horovod.torch as hvd
import torch

hvd.init()
torch.manual_seed(1)
layers = [torch.nn.Linear(inputs, outputs) for inputs, outputs in ((20, 150), (150, 150), (150, 3))]
model = torch.nn.Sequential(layers[0], torch.nn.ReLU(), *layers[1:])
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
inputs = torch.randn(64, 20) + hvd.rank()
for step in range(STEPS):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(inputs), inputs[:, :3].argmax(1))
    loss.backward()
    optimizer.step()
weights = torch.cat([one.detach().reshape(-1) for one in model.parameters()])
"""

TENSORFLOW = """
import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
tf.random.set_seed(1)
weights = [tf.Variable(tf.random.normal(shape, stddev=0.1)) for shape in [(20, 30), (30,), (30, 3), (3,)]]
hvd.broadcast_variables(weights, root_rank=0)
inputs = tf.random.normal((64, 20)) + float(hvd.rank())
labels = tf.argmax(inputs[:, :3], 1)

@tf.function
def train():
    with tf.GradientTape() as tape:
        hidden = tf.nn.relu(inputs @ weights[0] + weights[1])
        logits = hidden @ weights[2] + weights[3]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    tape = hvd.DistributedGradientTape(tape)
    for weight, gradient in zip(weights, tape.gradient(loss, weights)):
        weight.assign_sub(0.1 * gradient)
    return loss

for step in range(STEPS):
    loss = train()
weights = tf.concat([tf.reshape(one, [-1]) for one in weights], 0)
"""

KERAS = """
import horovod.tensorflow.keras as hvd
import keras
import numpy as np

hvd.init()
keras.utils.set_random_seed(1)
model = keras.Sequential([keras.layers.Dense(30, activation="relu"), keras.layers.Dense(3)])
model.compile(
    hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
inputs = np.random.default_rng(hvd.rank()).normal(size=(STEPS, 20)).astype("float32")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
history = model.fit(inputs, inputs[:, :3].argmax(1), batch_size=4, epochs=4, verbose=0, callbacks=callbacks)
loss = history.history["loss"][-1]
weights = np.concatenate([one.numpy().reshape(-1) for one in model.weights])
"""

# Every rank must end with the same finite weights; the first one prints them.
END = """
import numpy as np
weights = np.asarray(weights)
assert np.isfinite(weights).all() and np.isfinite(float(loss))
everyone = hvd.allgather_object(weights.tobytes()) if hasattr(hvd, "allgather_object") else [weights.tobytes()]
assert len(set(everyone)) == 1, "ranks differ"
print("script ends", hvd.rank(), flush=True)
"""

STEPS = 400
_SCRIPTS = {"torch": TORCH, "tensorflow": TENSORFLOW, "keras": KERAS}
EXCHANGED = {"torch": 3, "tensorflow": 4, "keras": 4}  # torch: a large weight, and buckets before and after it


def _horovodrun(folder: Path, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = written(folder, f"STEPS = {STEPS}\n{_SCRIPTS[script]}{END}")
    assert "paceline" not in path.read_text()
    return finished(*HOROVODRUN, path, env=debug(fusion_trial_steps=0) | variables)


@pytest.mark.parametrize("script", first_of(_SCRIPTS, "torch"))
def test_one_variable_switches_merging_on(script: str, tmp_path: Path) -> None:
    done = _horovodrun(
        tmp_path, script, PACELINE_FUSION="optimal", **debug(fusion_warmup_steps=4, fusion_trial_steps=0)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("script ends") == 2
    lines = [line for line in done.stderr.splitlines() if "Paceline: fusion=" in line]
    assert lines and all(line.startswith("[0]") for line in lines), done.stderr
    # More lines only after a new plan: costs differ on a machine that has become busy.
    gradients = f"{EXCHANGED[script]} gradients in "
    plans = (f"Paceline: fusion=optimal: {gradients}", f"Paceline: fusion=optimal: planned anew, {gradients}")
    assert plans[0] in lines[0] and all(any(plan in line for plan in plans) for line in lines), done.stderr


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PACELINE_FUSION": "optimul"}, "There is no fusion policy 'optimul'."),
        more({"PACELINE_FUSION": "single", "HOROVOD_AUTOTUNE": "1"}, "PACELINE_FUSION=single and HOROVOD_AUTOTUNE=1"),
        more(
            {"PACELINE_FUSION": "single", "HOROVOD_DISABLE_GROUP_FUSION": "1"},
            "PACELINE_FUSION=single and HOROVOD_DISABLE_GROUP_FUSION=1 exclude each other",
        ),
    ],
    ids=["unknown", "autotune", "groups"],
)
def test_what_cannot_be_had_is_refused_before_training(variables: dict[str, str], words: str, tmp_path: Path) -> None:
    done = _horovodrun(tmp_path, "torch", **variables)
    assert done.returncode != 0
    assert words in done.stderr
    assert "fusion=threshold" in done.stderr or "Did you mean optimal?" in done.stderr, "the remedy"
    assert "script ends" not in done.stdout
