"""codec= for Keras on both backends and for TensorFlow's tapes, eagerly and compiled."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from integration_tests.ranks.codecs.expected import ELEMENTS, bound, gradient, mean
from integration_tests.support.keras_worlds import keras_ranks
from integration_tests.support.ranks import ranks


def _optimizer(hvd: Any, name: str, **choices: Any) -> tuple[Any, Any]:
    variable = keras.Variable(np.zeros(ELEMENTS, "float32"), name=name)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name=name, **choices)
    optimizer.build([variable])
    return optimizer, variable


def _arrived(variable: Any) -> np.ndarray:
    return -np.asarray(keras.ops.convert_to_numpy(variable), np.float64)


@keras_ranks(3, more=(2,), hvd="paceline.keras")
def test_updates(rank: int, size: int, hvd: Any) -> None:
    given = keras.ops.convert_to_tensor(gradient(rank))
    for codec in ("bf16", "q8"):
        optimizer, variable = _optimizer(hvd, f"plain_{codec}", codec=codec, error_feedback=False)
        optimizer.apply([given], [variable])
        wrong = np.abs(_arrived(variable) - mean(size))
        assert wrong.max() > 1e-4 and (wrong <= bound(codec, size)).all(), codec
        fed_back, variable = _optimizer(hvd, f"fed_back_{codec}", codec=codec)
        for _ in range(20):
            fed_back.apply([given], [variable])
        wrong = np.abs(_arrived(variable) - 20 * mean(size))
        assert (wrong <= 2 * bound(codec, size) + 2e-4).all(), f"{codec}: {wrong.max()}"
    optimizer, variable = _optimizer(hvd, "late", codec="q8", error_feedback=False, exchange="pipelined")
    for _ in range(3):
        optimizer.apply([given], [variable])
    optimizer.drain()
    wrong = np.abs(_arrived(variable) - 3 * mean(size))
    assert wrong.max() > 1e-4 and (wrong <= 3 * bound("q8", size)).all()


@keras_ranks(2, hvd="paceline.keras")
def test_residuals_are_saved(rank: int, size: int, hvd: Any) -> None:
    given = [keras.ops.convert_to_tensor(gradient(rank, step)) for step in range(6)]
    for exchange in ("sync", "pipelined"):
        first, variable = _optimizer(hvd, f"state_{exchange}", codec="q8", exchange=exchange)
        for one in given[:3]:
            first.apply([one], [variable])
        state, value = first.in_flight(), keras.ops.convert_to_numpy(variable).copy()
        assert state is not None and state["residuals"]["rank"] == rank
        for one in given[3:]:
            first.apply([one], [variable])
        goal = _arrived(variable)
        # Restore the state of the same optimizer.
        first.load_in_flight(state)
        variable.assign(value)
        for one in given[3:]:
            first.apply([one], [variable])
        assert np.array_equal(_arrived(variable), goal), exchange


@ranks(2, hvd="paceline.tensorflow")
def test_tapes(rank: int, size: int, hvd: Any) -> None:
    variable = tf.Variable(tf.zeros(ELEMENTS))
    given = tf.constant(gradient(rank))

    def step(codec: str) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * given)
        return hvd.DistributedGradientTape(tape, codec=codec, error_feedback=codec == "q8").gradient(loss, variable)

    exact = step("none")
    np.testing.assert_allclose(exact, mean(size), rtol=1e-5, atol=1e-6)
    for call in (step, tf.function(step)):
        wrong = np.abs(np.asarray(call("bf16"), np.float64) - mean(size))
        assert wrong.max() > 1e-4 and (wrong <= bound("bf16", size)).all()
    total = np.sum([np.asarray(step("q8"), np.float64) for _ in range(20)], 0)
    assert (np.abs(total - 20 * mean(size)) <= 2 * bound("q8", size) + 2e-4).all()
    state = hvd.tape_in_flight()
    assert state is not None and state["residuals"]["values"][0].shape == (ELEMENTS,)
    after = np.asarray(step("q8"))
    hvd.load_tape_in_flight(state)
    assert np.array_equal(step("q8"), after), "a tape that goes on from a state has other bits"
    hvd.load_tape_in_flight(None)
    assert not np.array_equal(step("q8"), after)
    # By variables of a Keras optimizer, through the TensorFlow face.
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), codec="q8", error_feedback=False)
    optimizer.apply([given], [variable])
    assert (np.abs(-variable.numpy() - mean(size)) <= bound("q8", size)).all()
    with pytest.raises(ValueError, match="together with compression=FP16Compressor"):
        hvd.DistributedGradientTape(tf.GradientTape(), codec="q8", compression=hvd.Compression.fp16)


@keras_ranks(2, fresh=True, hvd="paceline.keras")
def test_ranks_with_other_codecs_are_refused(rank: int, size: int, hvd: Any) -> None:
    given = keras.ops.convert_to_tensor(gradient(rank))
    for exchange, place in (("sync", "encoding"), ("pipelined", "exchange")):
        name = f"differing_{exchange}"
        optimizer, variable = _optimizer(hvd, name, codec=("q8", "bf16")[rank], exchange=exchange)
        with pytest.raises(Exception, match=rf"paceline.{place}.{name}(.|\n)*codec's number"):
            optimizer.apply([given], [variable])


@keras_ranks(3, env={"PACELINE_COLLECTIVE": "ring"}, hvd="paceline.keras")
def test_gradients_of_bfloat16_are_added_up_in_float32(rank: int, size: int, hvd: Any) -> None:
    variable = keras.Variable(np.zeros(ELEMENTS), dtype="bfloat16")
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum)
    optimizer.build([variable])
    given = keras.ops.full((ELEMENTS,), 256.0 if rank == 0 else 1.0, dtype="bfloat16")
    optimizer.apply([given], [variable])
    found = keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32"))
    assert (found == -258).all()
