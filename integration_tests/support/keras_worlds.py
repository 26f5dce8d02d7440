"""Run one body on ranks with Keras on TensorFlow and with Keras on PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from integration_tests.support.ranks import run_ranks

Run = Callable[..., list[Any]]

# Loading TensorFlow and building its graphs is slow on a busy machine.
TIMEOUT_S = 150.0


@pytest.fixture(scope="module", params=["tensorflow", "torch"])
def on_ranks(request: pytest.FixtureRequest) -> Run:
    """Call with body, size and arguments: each rank runs body(rank, size, *args); one backend after the other."""

    def run(body: Callable[..., Any], size: int, *args: Any) -> list[Any]:
        return run_ranks(body, size, *args, env={"KERAS_BACKEND": request.param}, timeout_s=TIMEOUT_S)

    return run


def numpy(value: Any) -> np.ndarray[Any, Any]:
    import keras

    return np.array(keras.ops.convert_to_numpy(value))


def same_everywhere(values: list[Any], name: str) -> None:
    """Assert that arrays, variables or tensors are equal, bit for bit, on all ranks."""
    import paceline.keras as hvd

    mine = [numpy(value) for value in values]
    for rank, theirs in enumerate(hvd.allgather_object(mine, name=name)):
        for index, (here, there) in enumerate(zip(mine, theirs, strict=True)):
            np.testing.assert_array_equal(here, there, err_msg=f"number {index} differs from rank {rank}'s")
