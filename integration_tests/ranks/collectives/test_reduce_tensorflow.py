"""hvd.reduce for TensorFlow, eagerly and in graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import paceline.tensorflow as hvd
from integration_tests.ranks.collectives.test_collectives import FOLDS, given, in_both


@in_both(3, more=(2,))
def test_values(rank: int, size: int) -> None:
    def reduce(value: Any, root: int, name: str, op: Any) -> Any:
        return hvd.reduce(value, root, name, op)

    for compiled in (False, True):
        call = tf.function(reduce) if compiled else reduce
        for length in (0, 1, 17, 1001):
            for dtype in ("int64", "float32"):
                for op, fold in FOLDS.items():
                    root = length % size
                    wanted, mine = given(0, length, dtype), given(rank, length, dtype)
                    for other in range(1, size):
                        wanted = fold(wanted, given(other, length, dtype))
                    name = f"{op}.{dtype}.{length}"
                    found = call(tf.constant(mine), root, name, getattr(hvd, op))
                    np.testing.assert_array_equal(found, wanted if rank == root else mine, err_msg=name)
    variable = tf.Variable([[1.0 + rank, 2.0]])
    found = hvd.reduce(variable, 0)
    assert found.shape == (1, 2)
    np.testing.assert_allclose(found, [[(size + 1) / 2, 2.0]] if rank == 0 else [[1.0 + rank, 2.0]])
    half = tf.fill([3], tf.cast(1 + 2**-7, tf.bfloat16))
    np.testing.assert_array_equal(tf.cast(hvd.reduce(half, 0, "bfloat16"), tf.float32), np.full(3, 1 + 2**-7))


@in_both(2)
def test_every_step_of_a_graph_reduces(rank: int, size: int) -> None:
    """A result that TensorFlow could compute by itself, or leave out, is reduced in every step."""
    count = tf.Variable(0.0)

    @tf.function
    def step() -> Any:
        count.assign_add(1.0)
        return hvd.reduce(tf.ones([4]), 1, "constant", hvd.Sum) + hvd.reduce(count, 1, "count", hvd.Sum)

    for number in range(1, 4):
        wanted = size * (1 + number) if rank == 1 else 1 + number
        np.testing.assert_array_equal(step(), np.full(4, wanted))


@in_both(3, more=(2,))
def test_gradients(rank: int, size: int) -> None:
    def gradient(value: Any, root: int, op: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(value)
            found = hvd.reduce(value, root, "gradient", op, postscale_factor=3.0)
            loss = tf.reduce_sum(found * [1.0, 2.0]) * (rank + 1)
        return tape.gradient(loss, value)

    for call in (gradient, tf.function(gradient)):
        for root in range(size):
            for op, divisor in ((hvd.Average, size), (hvd.Sum, 1)):
                found = call(tf.constant([5.0, 7.0]), root, op)
                np.testing.assert_allclose(found, np.array([1.0, 2.0]) * (root + 1) * 3.0 / divisor, rtol=1e-6)
    with pytest.raises(ValueError, match=r"expected root_rank among the ranks \[0"):
        hvd.reduce(tf.ones(2), size)
    with pytest.raises(ValueError, match=r"IndexedSlices(.|\n)*dense"):
        hvd.reduce(tf.IndexedSlices(tf.ones([1, 2]), [0]), 0, "sparse")
    with tf.GradientTape() as tape:
        value = tf.Variable([1.0])
        most = hvd.reduce(value, 0, "most", hvd.Max)
    with pytest.raises(ValueError, match="'most' has no gradient"):
        tape.gradient(most, value)
