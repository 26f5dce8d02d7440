"""Keras: backends that paceline.keras serves, groups of gradients, names of operations."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from paceline.errors import UserError
from paceline.keras3.settings import Settings, split

pytest.importorskip("keras")


def _run(code: str, backend: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "KERAS_BACKEND": backend, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("backend", ["jax", "numpy", "openvino"])
def test_other_backends_are_refused_with_the_ones_that_work(backend: str) -> None:
    code = (
        "from paceline.errors import UserError\n"
        "try:\n    import paceline.keras\n"
        "except UserError as error:\n    print(error.problem, '|', error.remedy)"
    )
    result = _run(code, backend)
    problem, _, remedy = result.stdout.partition(" | ")
    assert repr(backend) in problem, result.stderr
    assert "KERAS_BACKEND=tensorflow or KERAS_BACKEND=torch" in remedy


def test_torch_backend_loads_no_tensorflow() -> None:
    code = (
        "import sys, keras, numpy\n"
        "import paceline.keras as hvd\n"
        "hvd.init()\n"
        "optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))\n"
        "variable = keras.Variable(numpy.zeros(3, 'float32'))\n"
        "optimizer.apply_gradients([(keras.ops.ones(3), variable)])\n"
        "assert float(variable.numpy().sum()) == -3.0\n"
        "assert hvd.size() == 1 and 'tensorflow' not in sys.modules\n"
    )
    result = _run(code, "torch")
    assert result.returncode == 0, result.stderr


def test_horovods_keras_module_names_ours_for_torch() -> None:
    code = (
        "import keras, horovod.keras as hvd\n"
        "try:\n    hvd.DistributedOptimizer(keras.optimizers.SGD())\n"
        "except Exception as error:\n    print(error)"
    )
    result = _run(code, "torch")
    assert "paceline.keras" in result.stdout, result.stderr


def _identity(variable: str) -> str:
    return variable


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (None, [[0], [1], [2], [3], [4]]),
        (1, [[0, 1, 2, 3, 4]]),
        (2, [[0, 1, 2], [3, 4]]),
        (3, [[0, 1], [2, 3], [4]]),
        (9, [[0], [1], [2], [3], [4]]),
        ([["d", "a"]], [[3, 0], [1], [2], [4]]),
        # A variable without a gradient is left out; one that is listed twice is sent once.
        ([["x"], ["e", "x", "e"], ["e"]], [[4], [0], [1], [2], [3]]),
    ],
)
def test_split(groups: int | list[list[str]] | None, expected: list[list[int]]) -> None:
    assert split(groups, list("abcde"), _identity) == expected
    assert split(3, [], _identity) == []


def _settings(**choices: object) -> Settings:
    common = {"name": "Adam of/mine", "op": 0, "average": 0, "process_set": None, "compression": None}
    return Settings(**{**common, **choices})  # type: ignore[arg-type]


def test_names_are_those_of_optimizer_and_place_and_predivision_splits_the_average() -> None:
    assert _settings().operation("HorovodAllreduce", 7) == "HorovodAllreduce_Adam_of_mine_7"
    chosen = _settings(gradient_predivide_factor=4.0)
    assert (chosen.prescale, chosen.postscale) == (0.25, 4.0)
    with pytest.raises(UserError, match="needs op=Average"):
        _settings(gradient_predivide_factor=4.0, op=1)
