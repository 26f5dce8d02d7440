"""Tests of Keras on TensorFlow and on PyTorch: a decorator, and comparisons for both backends."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import pytest

from integration_tests.support.more import more
from integration_tests.support.ranks import ranks

BACKENDS = ("tensorflow", "torch")

# Like `ranks`, with one backend after the other.
keras_ranks = functools.partial(ranks, worlds=[pytest.param({"KERAS_BACKEND": one}, id=one) for one in BACKENDS])


# Like `keras_ranks`, but `make test` runs only PyTorch: for tests that are slow and similar on TensorFlow.
mostly_on_torch = functools.partial(
    ranks,
    worlds=[
        more({"KERAS_BACKEND": "tensorflow"}, id="tensorflow"),
        pytest.param({"KERAS_BACKEND": "torch"}, id="torch"),
    ],
)


def compiled_or_not() -> tuple[bool, ...]:
    """Kinds of steps on this rank's backend: eager and compiled on TensorFlow, eager on PyTorch."""
    return (False, True) if keras.backend.backend() == "tensorflow" else (False,)


def numpy(value: Any) -> np.ndarray[Any, Any]:
    """Value of a variable or tensor of either backend."""
    return np.array(keras.ops.convert_to_numpy(value))


def assert_near(found: Any, expected: Any, text: str = "", rtol: float = 2e-5, atol: float = 1e-6) -> None:
    """Assert that variables or tensors are equal up to rounding."""
    for here, there in zip(found, expected, strict=True):
        np.testing.assert_allclose(numpy(here), numpy(there), rtol=rtol, atol=atol, err_msg=text)


def same_everywhere(values: list[Any], name: str) -> None:
    """Assert that arrays, variables or tensors are equal, bit for bit, on all ranks."""
    import paceline.keras as hvd

    mine = [numpy(value) for value in values]
    for rank, theirs in enumerate(hvd.allgather_object(mine, name=name)):
        for index, (here, there) in enumerate(zip(mine, theirs, strict=True)):
            np.testing.assert_array_equal(here, there, err_msg=f"number {index} differs from rank {rank}'s")
