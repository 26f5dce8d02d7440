"""A process that imports Horovod for PyTorch and for TensorFlow: the one that trains is a whole one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration_tests.support.more import more
from integration_tests.support.processes import PACELINE, finished, written

_IMPORTS = {"torch": "import paceline.torch", "keras": "import paceline.keras"}
# Gradients differ between the ranks, so that a rank that trains by itself shows.
_TRAIN = """
import keras
import numpy as np
import tensorflow as tf

import paceline.keras as hvd

hvd.init()
weight = keras.Variable(np.ones(3), dtype="float64")
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), exchange="{exchange}")
found = []
for step in range(4):
    optimizer.apply([tf.constant(np.asarray(weight) + hvd.rank())], [weight])
    found.append(round(float(np.asarray(weight)[0]), 4))
print("weights", found, flush=True)
"""


@pytest.mark.patch("two-libraries")
@pytest.mark.parametrize(
    ("exchange", "weights"),
    [
        more("sync", [0.85, 0.715, 0.5935, 0.4841], id="sync"),
        pytest.param("pipelined", [1.0, 0.85, 0.7, 0.565], id="pipelined"),
    ],
)
@pytest.mark.parametrize("order", [("torch", "keras"), ("keras", "torch")], ids="-".join)
def test_keras_trains_on_all_ranks_where_the_other_library_is_loaded(
    order: tuple[str, str], exchange: str, weights: list[float], tmp_path: Path
) -> None:
    script = "\n".join(_IMPORTS[one] for one in order) + _TRAIN.format(exchange=exchange)
    done = finished(*PACELINE, "run", "-np", "2", sys.executable, written(tmp_path, script))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"weights {weights}") == 2, done.stdout
