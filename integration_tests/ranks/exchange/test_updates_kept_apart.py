"""Updates in flight of several optimizers and tapes of one process, under default names: none gets another's."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from integration_tests.support.keras_worlds import assert_near, keras_ranks, numpy
from integration_tests.support.ranks import ranks
from paceline.errors import UserError
from paceline.native.library import counters

TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}
EXCHANGES = ["pipelined", "majority"]


def _mean(size: int, factor: float) -> float:
    """Of gradients factor * (rank + 1)."""
    return factor * (size + 1) / 2


@keras_ranks(2, hvd="paceline.keras")
def test_twin_optimizers_keep_their_own_gradients(rank: int, size: int, hvd: Any) -> None:
    for exchange in ("pipelined", hvd.Pipelined(k=3), hvd.Partial(quorum=size)):
        twins = [hvd.DistributedOptimizer(keras.optimizers.Nadam(), exchange=exchange) for _ in range(2)]
        seen: list[list[Any]] = [[], []]
        for one, here in zip(twins, seen, strict=True):
            # The update uses the values that the exchange returned.
            one._backend_update_step = lambda grads, *_, here=here: here.append(numpy(grads[0]))
        variables = [keras.Variable(np.zeros(3, np.float32)) for _ in twins]
        for _ in range(4):
            hvd.init()  # again, as each part of a program may: nothing restarts
            for one, variable, factor in zip(twins, variables, (1.0, 100.0), strict=True):
                one.apply([keras.ops.full((3,), factor * (rank + 1))], [variable])
        for one in twins:
            one.drain()
        for here, factor in zip(seen, (1.0, 100.0), strict=True):
            updates = [update for update in here if update.any()]
            np.testing.assert_allclose(updates, [[_mean(size, factor)] * 3] * 4, err_msg=f"{exchange} {seen}")


def _twice(optimizer: Any, variable: Any) -> Any:
    # AutoGraph would wrap our error in one of its own.
    return tf.function(lambda: [optimizer.apply([tf.ones(3)], [variable]) for _ in range(2)], autograph=False)


@ranks(2, env=TENSORFLOW, hvd="paceline.keras")
def test_twins_in_one_function_are_drained(rank: int, size: int, hvd: Any) -> None:
    for exchange in ("pipelined", hvd.Partial(quorum=size)):
        variables = [keras.Variable(np.zeros(3, np.float32)) for _ in range(2)]
        twins = [hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), exchange=exchange) for _ in variables]
        for one, variable in zip(twins, variables, strict=True):
            one.build([variable])

        @tf.function
        def step(number: Any, twins: Any = twins) -> None:
            for one, factor in zip(twins, (1.0, 100.0), strict=True):
                one.apply([tf.fill([3], factor * number * (rank + 1.0))])

        for number in range(3):
            step(tf.constant(number + 1.0))
        for one, variable, factor in zip(twins, variables, (1.0, 100.0), strict=True):
            one.drain()
            np.testing.assert_allclose(variable.numpy(), [-6 * _mean(size, factor)] * 3)
        once = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), exchange=exchange)
        with pytest.raises(UserError, match=r"expected(.|\n)*once in a tf.function, found twice"):
            _twice(once, variables[0])()


@ranks(2, env=TENSORFLOW, hvd="paceline.tensorflow")
def test_twin_tapes_and_then_twin_updates(rank: int, size: int, hvd: Any) -> None:
    def train(inside: bool, named: bool, clipped: bool) -> None:
        label = f"{inside}{named}{clipped}"
        weights = [tf.Variable(np.zeros(3, np.float32)) for _ in range(2)]
        optimizers = [keras.optimizers.SGD(1.0) for _ in weights]
        for one, weight in zip(optimizers, weights, strict=True):
            one.build([weight])

        def step(number: Any) -> None:
            gradients = []
            for place, weight in enumerate(weights):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(weight) * (10.0**place) * number * (rank + 1.0)
                name: dict[str, Any] = {"name": f"{label}{place}"} if named else {}
                tape = hvd.DistributedGradientTape(tape, exchange="pipelined", **name)
                gradients += [
                    tf.clip_by_value(one, -1e6, 1e6) if clipped else one for one in tape.gradient(loss, [weight])
                ]
            for one, gradient, weight in zip(optimizers, gradients, weights, strict=True):
                one.apply_gradients([(gradient, weight)])

        run = tf.function(step) if inside else step
        for number in range(3):
            run(tf.constant(number + 1.0))
        # Neither has an answer in its first step: two updates each, not one and a phantom of zeros.
        assert [int(one.iterations) for one in optimizers] == [2, 2], label
        for place, (one, weight) in enumerate(zip(optimizers, weights, strict=True)):
            name: dict[str, Any] = {"name": f"{label}{place}"} if named else {}
            assert hvd.drain_tape(one, [weight], **name) == 1
            np.testing.assert_allclose(weight.numpy(), [-6 * _mean(size, 10.0**place)] * 3, err_msg=label)

    for inside in (False, True):
        for named in (True, False):
            for clipped in (False, True):
                train(inside, named, clipped)


@ranks(2, env=TENSORFLOW, hvd="paceline.tensorflow")
def test_gradients_of_one_tape_for_two_optimizers(rank: int, size: int, hvd: Any) -> None:
    for inside in (False, True):
        weights = [tf.Variable(np.zeros(3, np.float32)) for _ in range(2)]
        optimizers = [keras.optimizers.SGD(1.0) for _ in weights]
        for one, weight in zip(optimizers, weights, strict=True):
            one.build([weight])

        def step(weights: Any = weights, optimizers: Any = optimizers) -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weights[0] * 2.0 + weights[1] * 3.0)
            tape = hvd.DistributedGradientTape(tape, exchange="pipelined")
            gradients = tape.gradient(loss, weights)
            for one, gradient, weight in zip(optimizers, gradients, weights, strict=True):
                one.apply_gradients([(gradient, weight)])

        run = tf.function(step) if inside else step
        for _ in range(3):
            run()
        assert [int(one.iterations) for one in optimizers] == [2, 2]
        assert [one.numpy().tolist() for one in weights] == [[-4.0] * 3, [-6.0] * 3]


@ranks(2, env=TENSORFLOW, hvd="paceline.tensorflow")
def test_gradients_that_are_compile_time_constants(rank: int, size: int, hvd: Any) -> None:
    for exchange in ("sync", "pipelined", hvd.Partial(quorum=size)):
        for wrapped in (True, False):
            for shape in ((), (3,), (2, 0, 5)):
                label = f"constant.{exchange}{wrapped}{len(shape)}"
                weight = tf.Variable(tf.zeros(shape))
                optimizer: Any = keras.optimizers.SGD(1.0)
                if wrapped:
                    optimizer = hvd.DistributedOptimizer(optimizer, name=label, exchange=exchange)
                optimizer.build([weight])
                before = hvd_counters()["tensors"]

                @tf.function
                def step(
                    weight: Any = weight,
                    optimizer: Any = optimizer,
                    wrapped: bool = wrapped,
                    label: str = label,
                    exchange: Any = exchange,
                ) -> None:
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_sum(weight * 2.0 * (rank + 1))
                    if not wrapped:
                        tape = hvd.DistributedGradientTape(tape, name=label, exchange=exchange)
                    optimizer.apply_gradients(zip(tape.gradient(loss, [weight]), [weight], strict=True))

                for _ in range(4):
                    step()
                late = optimizer.drain() if wrapped else hvd.drain_tape(optimizer, [weight], name=label)
                assert late == (exchange == "pipelined"), label  # with all ranks as the quorum nothing is left
                np.testing.assert_allclose(weight.numpy(), np.full(shape, -4 * 2 * _mean(size, 1.0)), err_msg=label)
                # Every step asked the other ranks; none used what an earlier one was answered.
                assert hvd_counters()["tensors"] - before >= 4, label


def hvd_counters() -> dict[str, int]:
    """Sums of this process so far."""
    return counters("tensorflow")


@keras_ranks(2, hvd="paceline.keras")
def test_a_dropped_optimizer_leaves_its_name_to_another(rank: int, size: int, hvd: Any) -> None:
    for exchange in ("pipelined", hvd.Partial(quorum=size)):
        for width in (3, 5):
            optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="swept", exchange=exchange)
            variable = keras.Variable(np.zeros(width, np.float32))
            for _ in range(3):
                optimizer.apply([keras.ops.full((width,), rank + 1.0)], [variable])
            np.testing.assert_allclose(numpy(variable), [-(2 if exchange == "pipelined" else 3) * 1.5] * width)


@ranks(2, env=TENSORFLOW, hvd="paceline.tensorflow")
def test_dropped_weights_leave_the_tapes_name_to_others(rank: int, size: int, hvd: Any) -> None:
    for exchange in ("pipelined", hvd.Partial(quorum=size)):
        for inside in (False, True):
            for width in (3, 5):
                weight, name = tf.Variable(tf.zeros(width)), f"swept{inside}"

                def step(weight: Any = weight, exchange: Any = exchange, name: str = name) -> Any:
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_sum(weight * (rank + 1.0))
                    tape = hvd.DistributedGradientTape(tape, name=name, exchange=exchange)
                    return tape.gradient(loss, weight)

                run = tf.function(step) if inside else step
                for _ in range(3):
                    last = run()
                np.testing.assert_allclose(last, [1.5] * width)
                del run, step, weight
    from paceline.tensorflow.tape import exchange as tape_exchange

    gc.collect()
    # TensorFlow keeps compiled functions, and their captured values, for longer.
    assert not [kept for kept in tape_exchange._tapes().kept if kept.key[0] == "sweptFalse"]


@ranks(2, env=TENSORFLOW, hvd="paceline.tensorflow")
def test_eager_tapes_are_traced_once(rank: int, size: int, hvd: Any) -> None:
    traces = []

    class Counting(hvd.Compression.none):
        @staticmethod
        def compress(tensor: Any) -> Any:
            traces.append(tensor)
            return tensor, None

    for exchange in ("sync", "pipelined", hvd.Partial(quorum=size)):
        weight = tf.Variable([1.0, 2.0])
        traces.clear()
        for _ in range(5):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weight**2)
            tape = hvd.DistributedGradientTape(tape, compression=Counting, name="traced", exchange=exchange)
            tape.gradient(loss, [weight])
        assert len(traces) == 1, (exchange, len(traces))


@keras_ranks(2, hvd="paceline.keras")
def test_load_model_takes_what_keras_does(rank: int, size: int, hvd: Any, tmp_path: Path) -> None:
    path = tmp_path / f"{rank}.keras"
    model = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda x: x * 2), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    model.save(path)
    with pytest.raises(ValueError, match="safe_mode"):
        hvd.load_model(path)
    loaded = hvd.load_model(path, safe_mode=False, name="loaded", exchange="pipelined")
    loaded.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0)
    assert loaded.optimizer.drain() == 1
    plain = hvd.load_model(path, safe_mode=False, compile=False)
    assert getattr(plain, "optimizer", None) is None
    with pytest.raises(TypeError, match="saf_mode"):
        hvd.load_model(path, safe_mode=False, saf_mode=False)


@pytest.mark.more
@keras_ranks(2, hvd="paceline.keras")
def test_what_is_in_flight_is_saved_beside_the_model(rank: int, size: int, hvd: Any, tmp_path: Path) -> None:
    """Trained for an epoch, saved, loaded by a new model and trained for another: as two epochs in one go."""
    generator = np.random.default_rng(rank)
    x, y = generator.normal(size=(15, 3)), generator.normal(size=(15, 1))

    def model(exchange: Any) -> Any:
        keras.utils.set_random_seed(5)
        made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, dtype="float64")])
        made.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), exchange=exchange), "mse")
        return made

    def fit(one: Any, callbacks: Any = ()) -> None:
        one.fit(x, y, batch_size=5, epochs=1, shuffle=False, verbose=0, callbacks=list(callbacks))

    for exchange in ("sync", hvd.Pipelined(k=3), hvd.Partial(quorum=size)):
        whole = model(exchange)
        fit(whole)
        fit(whole)
        path = tmp_path / f"{rank}.keras"  # each its own model, one gradients in flight where they are the same
        shared = str(tmp_path / "model.keras")
        first = model(exchange)
        saving = hvd.callbacks.InFlightCheckpoint(shared)
        fit(first, [saving])
        first.save(path)
        second = hvd.load_model(path, exchange=exchange)
        fit(second, [hvd.callbacks.InFlightCheckpoint(shared + "{epoch}", resume=shared)])
        for one in (whole, second):
            one.optimizer.drain()
        assert_near(second.weights, whole.weights, str(exchange), rtol=1e-9, atol=0)
    if rank == size - 1:
        Path(f"{shared}.in_flight.{rank}.npz").write_text("no archive")
    wrong = hvd.callbacks.InFlightCheckpoint(shared, resume=shared)
    with pytest.raises(UserError, match=f"Rank {size - 1} cannot go on"):
        fit(model(hvd.Partial(quorum=size)), [wrong])
    with pytest.raises(UserError, match=r"expected an optimizer of hvd\.DistributedOptimizer, found SGD"):
        plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        plain.compile("sgd", "mse")
        fit(plain, [hvd.callbacks.InFlightCheckpoint(shared)])
