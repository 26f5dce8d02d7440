"""paceline.tensorflow: tapes and optimizers, eager and in tf.function, with dense and sparse gradients."""

from __future__ import annotations

from typing import Any

import horovod.tensorflow
import numpy as np
import pytest
import tensorflow as tf

import paceline.tensorflow as hvd
from integration_tests.support.ranks import ranks
from paceline.errors import UserError

TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}


@ranks(2, env=TENSORFLOW)
def test_everything_of_horovod_is_there(rank: int, size: int) -> None:
    theirs = {name for name in dir(horovod.tensorflow) if not name.startswith("_")}
    assert theirs <= set(hvd.__all__) and all(hasattr(hvd, name) for name in theirs)
    assert (hvd.rank(), hvd.size()) == (rank, size)


@pytest.mark.parametrize("inside", [False, True])
@ranks(2, env=TENSORFLOW)
def test_tape_gives_averages(rank: int, size: int, inside: bool) -> None:
    table = tf.Variable(tf.ones([5, 2]))
    dense = tf.keras.Variable(np.ones(3, np.float32))
    frozen = tf.Variable(1.0)
    own = tf.Variable([2.0])

    def step(factor: Any, rows: Any) -> Any:
        with tf.GradientTape() as tape:
            looked_up = tf.gather(table, rows)
            loss = factor * (tf.reduce_sum(looked_up) + tf.reduce_sum(dense * [1.0, 2.0, 3.0]) + own[0])
        tape = hvd.DistributedGradientTape(tape, name=f"tape{inside}")
        assert isinstance(tape, tf.GradientTape)
        tape.register_local_source(own)
        return tape.gradient(loss, [table, dense, frozen, own])

    run = tf.function(step) if inside else step
    for turn in range(2):
        factor = float(rank + 1 + turn)
        sparse, averaged, nothing, local = run(tf.constant(factor), tf.constant([rank, 4]))
        mean = (size + 1) / 2 + turn
        np.testing.assert_allclose(averaged, mean * np.array([1.0, 2.0, 3.0]))
        assert nothing is None
        np.testing.assert_allclose(local, [factor / size])
        expected = np.zeros([5, 2])
        for other in range(size):
            expected[[other, 4]] += (other + 1 + turn) / size
        assert isinstance(sparse, tf.IndexedSlices)
        np.testing.assert_allclose(tf.convert_to_tensor(sparse), expected)


@ranks(2, env=TENSORFLOW)
def test_partial_tape_and_groups(rank: int, size: int) -> None:
    model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(3), tf.keras.layers.Dense(1)])
    for variable in model.trainable_variables:
        variable.assign(tf.ones(variable.shape))
    x = tf.constant([[1.0, 2.0]]) * (rank + 1)

    def gradients(wrap: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x))
        return list(wrap(tape).gradient(loss, model.trainable_variables))

    mine = gradients(lambda tape: tape)
    partial = gradients(lambda tape: hvd.PartialDistributedGradientTape(tape, local_layers=model.layers[0]))
    groups = [[model.trainable_variables[2], model.trainable_variables[0]]]
    averaged = gradients(lambda tape: hvd.DistributedGradientTape(tape, groups=groups, name="grouped"))
    for place, (alone, part, whole) in enumerate(zip(mine, partial, averaged, strict=True)):
        expected = np.mean(hvd.allgather_object(alone.numpy(), name=f"partial.{place}"), axis=0)
        np.testing.assert_allclose(whole, expected)
        np.testing.assert_allclose(part, alone / size if place < 2 else expected)


@ranks(2, env=TENSORFLOW)
def test_optimizer_in_a_function_with_the_loop_of_keras_2(rank: int, size: int) -> None:
    for op, expected in ((hvd.Average, 1.5), (hvd.Sum, 3.0)):
        variable = tf.Variable([0.0, 0.0])
        optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), name=f"old{op}", op=op)

        @tf.function
        def step(variable: Any = variable, optimizer: Any = optimizer) -> None:
            pairs = optimizer.compute_gradients(lambda: (rank + 1.0) * tf.reduce_sum(variable), [variable])
            # Averaged (or summed) above: applying them must not do it again, changed or not.
            optimizer.apply_gradients([(tf.clip_by_value(grad, -100.0, 100.0), one) for grad, one in pairs])

        step()
        np.testing.assert_allclose(variable.numpy(), [-expected] * 2)
        # Without compute_gradients, applying averages.
        optimizer.apply_gradients([(tf.constant([rank + 1.0, 0.0]), variable)])
        np.testing.assert_allclose(variable.numpy(), [-2 * expected, -expected])


@ranks(2, env=TENSORFLOW)
def test_optimizer_of_tensorflow_1_is_horovods(rank: int, size: int) -> None:
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0))
    assert type(optimizer).__module__ == "horovod.tensorflow"


@ranks(2, env=TENSORFLOW)
def test_sparse_gradients_of_an_optimizer_stay_sparse(rank: int, size: int) -> None:
    rows = tf.IndexedSlices(tf.fill([2, 3], float(rank + 1)), tf.constant([rank, 3]), tf.constant([4, 3]))
    table = tf.keras.Variable(np.zeros([4, 3], np.float32))
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), name="rows")
    optimizer.apply_gradients([(rows, table)])
    np.testing.assert_allclose(table.numpy(), np.repeat([[-0.5], [-1.0], [0.0], [-1.5]], 3, axis=1))
    passes = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), name="rows2", backward_passes_per_step=2)
    with pytest.raises(UserError, match="sparse_as_dense=True"):
        passes.apply_gradients([(rows, table)])


def _gan(rank: float, size: int, way: str) -> list[Any]:
    """Weights of a generator and a critic, of equal shapes and optimizers, after steps with data of rank and turn."""
    weights = [tf.Variable(tf.fill([37, 11], 1.0 + place)) for place in range(2)]
    passes: dict[str, Any] = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    shared = passes if way == "passes" else {}
    own = {"gradient_accumulation_steps": 2} if way == "keras" else {}
    optimizers: list[Any] = [tf.keras.optimizers.SGD(0.1, **own) for _ in weights]
    if size > 1 and way != "tapes":
        optimizers = [hvd.DistributedOptimizer(one, **shared) for one in optimizers]

    def player(place: int, factor: Any) -> None:
        with tf.GradientTape() as tape:
            loss = (1.0 + 9 * place) * factor * tf.reduce_sum(weights[place] ** 2)
        if size > 1 and way == "tapes":
            tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, [weights[place]])
        optimizers[place].apply_gradients([(gradients[0], weights[place])])

    players = [tf.function(lambda factor, place=place: player(place, factor)) for place in range(2)]

    @tf.function
    def step(factor: Any) -> None:
        for one in players:
            one(factor)

    for turn in range(4):
        if way == "passes" and size == 1 and turn % 2:
            continue
        step(tf.constant(0.001 * (1 + (turn - turn % 2 if way in ("passes", "keras") else turn)) * (rank + 1)))
    return [one.numpy() for one in weights]


@ranks(2, env=TENSORFLOW)
def test_two_of_equal_class_in_one_step_do_not_meet(rank: int, size: int) -> None:
    for way in ("optimizers", "passes", "keras", "tapes"):
        for mine, alone in zip(_gan(rank, size, way), _gan(0.5, 1, way), strict=True):
            np.testing.assert_allclose(mine, alone, rtol=1e-5, err_msg=way)


@ranks(2, env=TENSORFLOW)
def test_results_are_of_the_types_that_are_named(rank: int, size: int) -> None:
    weight = tf.Variable([1.0, 2.0])
    before = hvd.exchange_stats()  # of tests before in this process
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * (rank + 1.0))
    (gradient,) = hvd.DistributedGradientTape(tape, exchange=hvd.Sync(), name="types").gradient(loss, [weight])
    assert gradient.numpy().tolist() == [(size + 1) / 2] * 2
    messages = hvd.metrics()["paceline_messages_total"]
    hvd.allreduce(tf.ones(3), name="tape.metrics")
    assert hvd.metrics()["paceline_messages_total"] == messages + 1
    report, stats = hvd.fusion_report(), hvd.exchange_stats()
    assert isinstance(report, hvd.FusionReport) and report.policy == "threshold"
    assert isinstance(stats, hvd.ExchangeStats) and stats.since(before).rounds == 0
    begun = hvd.partial_allreduce_async(tf.ones(3), "types.partial", quorum=size)
    assert isinstance(begun, hvd.PartialResult)
    mean, fresh = begun.wait()
    assert (mean.numpy().tolist(), int(fresh)) == ([1.0, 1.0, 1.0], size)


@pytest.mark.parametrize("exchange", ["sync", "pipelined", "partial"])
@pytest.mark.parametrize("inside", [False, True])
@ranks(2, more=(3,), env=TENSORFLOW)
def test_weights(rank: int, size: int, inside: bool, exchange: str) -> None:
    """sum(w g) / sum(w); the gradient of a rank with the weight 0 is NaN. Gradients in flight are saved and drained."""
    one = tf.Variable(tf.zeros([3], tf.float64))
    chosen = hvd.Partial(quorum=size) if exchange == "partial" else exchange
    name = f"weighted{inside}{exchange}"

    def gradient(factor: Any, weight: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = factor * tf.reduce_sum(one * tf.constant([1.0, 2.0, 3.0], tf.float64))
        return hvd.DistributedGradientTape(tape, name=name, exchange=chosen, weight=weight).gradient(loss, [one])[0]

    run = tf.function(gradient) if inside else gradient
    expected = []
    for step in range(4):
        weights = [0 if (other + step) % 3 == 1 else 10 * other + step + 1 for other in range(size)]
        factors = [other + 7.0 * step for other in range(size)]
        here = factors[rank] if weights[rank] else float("nan")
        found = run(tf.constant(here, tf.float64), tf.constant(weights[rank]))
        mean = sum(w * f for w, f in zip(weights, factors, strict=True)) / sum(weights)
        expected.append(mean * np.array([1.0, 2.0, 3.0]))
        if exchange == "pipelined" and not step:
            assert not found.numpy().any()
        else:
            np.testing.assert_allclose(found, expected[-2 if exchange == "pipelined" else -1], rtol=0, atol=1e-12)
    if exchange == "pipelined":
        saved = hvd.tape_in_flight(name)
        hvd.load_tape_in_flight(saved, name)
        run = tf.function(gradient) if inside else gradient
        found = run(tf.constant(1.0, tf.float64), tf.constant(1))
        np.testing.assert_allclose(found, expected[-1], rtol=0, atol=1e-12)
        assert hvd.drain_tape(tf.keras.optimizers.SGD(1.0), [one], name) == 1
        np.testing.assert_allclose(one, [-1.0, -2.0, -3.0], rtol=0, atol=1e-12)
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), name=f"by{name}", weight=2)
    assert optimizer.weight == 2
    for weight, words in ((-1, "finite number >= 0"), ([1, 2], "finite number >= 0"), ("samples", "a scalar tensor")):
        with pytest.raises(UserError, match=words):
            hvd.DistributedGradientTape(tf.GradientTape(), weight=weight)


@pytest.mark.parametrize("inside", [False, True])
@ranks(2, env=TENSORFLOW)
def test_weights_of_what_stays_on_its_rank_and_of_nobody(rank: int, size: int, inside: bool) -> None:
    one, other = (tf.Variable(tf.zeros([3], tf.float64)) for _ in range(2))

    def gradients(factor: Any, weight: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = factor * tf.reduce_sum(one + 2 * other)
        wrapped = hvd.DistributedGradientTape(tape, name=f"stays{inside}", weight=weight)
        wrapped.register_local_source(other)
        return wrapped.gradient(loss, [one, other])

    run = tf.function(gradients) if inside else gradients
    for weight, here, there in ((2.0 * rank, 2.0, 2.0 * rank), (0.0, 0.0, 0.0)):
        factor = rank + 1.0 if weight else float("nan")
        found = run(tf.constant(factor, tf.float64), tf.constant(weight, tf.float64))
        np.testing.assert_array_equal(found[0], np.full(3, here))
        np.testing.assert_array_equal(found[1], np.full(3, there))
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"Rank {rank}: weight(.|\n)*-2(.|\n)*finite number >= 0"):
        run(tf.constant(1.0, tf.float64), tf.constant(-2.0, tf.float64))
