"""Scripts without Paceline's functions, with a slow rank, and their expected weights at the very end.

The gradient of a step depends only on its rank and number. Thus weights show whose gradients were applied, and how
often. Every exchange must apply each gradient of each rank once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from integration_tests.support.processes import finished, written

STEPS = 24
RATE = 2.0**-10
# Duration of a step, to which a slow rank adds.
STEP_S = 0.005

BEGIN = """
import atexit, os, sys, time
made = 0
end, steps, pauses = os.environ["SLOW_END"], eval(os.environ["SLOW_STEPS"]), eval(os.environ["SLOW_PAUSES"])
def gradient(step):
    return float((step + 1) * 8 ** rank)
def finish():
    if end == "shutdown":
        hvd.shutdown()
    elif end == "exit":
        sys.exit(0)
"""

TORCH = """
import horovod.torch as hvd
import torch
w = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
atexit.register(lambda: print(f"RANK {rank} {made} {w[0].item()!r} {w[2].item()!r}", flush=True))
hvd.init()
rank = hvd.rank()
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([w], lr=2.0**-10), named_parameters=[("w", w)])
for step in range(steps[rank]):
    optimizer.zero_grad()
    (w * gradient(step)).sum().backward()
    optimizer.step()
    made += 1
    time.sleep(pauses[rank])
finish()
"""
# A number of ranks as quorum cannot be set by a variable.
QUORUM = TORCH.replace("import horovod.torch", "import paceline.torch").replace(
    'named_parameters=[("w", w)]', 'named_parameters=[("w", w)], exchange=hvd.Partial(quorum=hvd.size() - 1)'
)

KERAS = """
import horovod.tensorflow.keras as hvd
import keras
import numpy as np
class Pause(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        global made
        made += 1
        time.sleep(pauses[rank])
keras.config.set_floatx("float64")
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(3, use_bias=False, kernel_initializer="zeros")])
atexit.register(lambda: print(f"RANK {rank} {made} {model.get_weights()[0][0, 0].item()!r} "
                              f"{model.get_weights()[0][0, 2].item()!r}", flush=True))
hvd.init()
rank = hvd.rank()
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(2.0**-10)), lambda _, found: keras.ops.sum(found))
x = np.array([[gradient(step)] for step in range(steps[rank])])
model.fit(x, x, batch_size=1, shuffle=False, verbose=0, callbacks=[Pause()])
finish()
"""

TAPE = """
import horovod.tensorflow as hvd
import keras
import tensorflow as tf
w = tf.Variable([0.0] * 3, dtype=tf.float64)
atexit.register(lambda: print(f"RANK {rank} {made} {float(w[0])!r} {float(w[2])!r}", flush=True))
hvd.init()
rank = hvd.rank()
optimizer = keras.optimizers.SGD(2.0**-10)
@tf.function
def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w * x)
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, [w]), [w]))
for step in range(steps[rank]):
    train(tf.constant(gradient(step), tf.float64))
    made += 1
    time.sleep(pauses[rank])
finish()
"""

SCRIPTS = {"torch": TORCH, "keras": KERAS, "tape": TAPE}


class Rank(NamedTuple):
    """Final output of a rank: its number of steps, and two of its weights."""

    steps: int
    weights: tuple[float, float]


def run(
    folder: Path, script: str, size: int, pauses: Sequence[float], end: str, steps: Sequence[int] = (), **variables: str
) -> tuple[subprocess.CompletedProcess[str], list[Rank]]:
    """Run a script to its end; `pauses` in seconds, and optionally `steps`, by rank."""
    path = written(folder, BEGIN + script)
    own = {"SLOW_END": end, "SLOW_STEPS": str(list(steps) or [STEPS] * size), "SLOW_PAUSES": str(list(pauses))}
    words = [sys.executable, "-m", "horovod.runner.launch", "-np", str(size), sys.executable, str(path)]
    done = finished(*words, env={**own, **variables})
    found = {}
    for line in done.stdout.splitlines():
        _, mark, text = line.partition("RANK ")
        if mark:
            rank, made, first, last = text.split()
            found[int(rank)] = Rank(int(made), (float(first), float(last)))
    return done, [found[rank] for rank in sorted(found)]


def expected(steps: Sequence[int]) -> float:
    """Expected value of each weight if every gradient of every rank was applied once."""
    return -RATE * sum(8**rank * (step + 1) for rank, count in enumerate(steps) for step in range(count)) / len(steps)
