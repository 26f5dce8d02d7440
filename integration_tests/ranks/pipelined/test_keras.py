"""Pipelined exchange of Keras gradients, on TensorFlow and on PyTorch: updates are K - 1 steps late and nothing else.

Gradients are closed formulas of rank, step and place, so that the plain optimizer, given the averages of the steps that
were applied, is the reference.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import optimizers as o

import paceline.keras as hvd
import paceline.native.agreement
from integration_tests.support.keras_steps import apply, averages, gradients, variables_from_one
from integration_tests.support.keras_worlds import assert_near, keras_ranks, numpy, same_everywhere
from integration_tests.support.merging import ByHand
from integration_tests.support.more import first_of, more
from paceline.errors import UserError
from paceline.pipelined.settings import Pipelined
from paceline.registry.agreement import agreement


def _makers() -> dict[str, Callable[[], Any]]:
    decay = o.schedules.ExponentialDecay(0.1, decay_steps=2, decay_rate=0.5, staircase=True)
    return {
        "momentum": lambda: o.SGD(0.1, momentum=0.9, nesterov=True),
        "adam": lambda: o.Adam(0.05),
        "clipped": lambda: o.Adam(0.05, global_clipnorm=1.0),
        "schedule": lambda: o.SGD(decay),
        "ema": lambda: o.SGD(0.1, use_ema=True, ema_momentum=0.5),
    }


@keras_ranks(3, more=(2,))
def test_updates_are_late_and_otherwise_the_plain_optimizers(rank: int, size: int) -> None:
    for name, make in _makers().items():
        # A schedule counts backward passes, as Horovod's optimizer does.
        for k, warmup, passes in [(2, 0, 1), (3, 2, 1)] + [(2, 0, 3)] * (name != "schedule"):
            steps = 6
            label = f"{name}{k}{warmup}{passes}"
            exchange = hvd.Pipelined(k=k, warmup_steps=warmup)
            wrapped, variables = (
                hvd.DistributedOptimizer(make(), name=label, exchange=exchange, backward_passes_per_step=passes),
                variables_from_one(),
            )
            plain, expected = make(), variables_from_one()
            for step in range(steps):
                for _ in range(passes):
                    apply(wrapped, variables, gradients(rank, step))
                if step < warmup or step >= warmup + k - 1:
                    due = step if step < warmup else step - (k - 1)
                    apply(plain, expected, averages(size, due, passes))
                    assert int(numpy(wrapped.iterations)) == passes * int(numpy(plain.iterations)), label
                assert_near(variables, expected, label)
            same_everywhere([*variables, *wrapped.variables], f"{label}.same")
            assert wrapped.drain() == k - 1
            for due in range(steps - (k - 1), steps):
                apply(plain, expected, averages(size, due, passes))
            assert int(numpy(wrapped.iterations)) == passes * int(numpy(plain.iterations)), label
            assert_near(variables, expected, label)
            assert wrapped.drain() == 0 and not (wrapped.in_flight() or {"in_flight": []})["in_flight"]


def _values(gamma: float, exchange: Any, steps: int, name: str) -> list[float]:
    """The weights at which the gradients of SGD on w^2 / 2 are taken, from 1."""
    w = keras.Variable(np.ones((1,)), dtype="float64")
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(gamma), name=name, exchange=exchange)
    optimizer.build([w])

    def step() -> Any:
        optimizer.apply([keras.ops.convert_to_tensor(w) * 1.0])

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        step = tf.function(step)
    values = []
    for _ in range(steps):
        values.append(float(numpy(w)[0]))
        step()
    optimizer.drain()
    return values


@keras_ranks(2)
def test_quadratic_goes_as_the_paper_says(rank: int, size: int) -> None:
    assert _values(0.1, "pipelined", 6, "two") == pytest.approx([1, 1, 0.9, 0.8, 0.71, 0.63], rel=1e-6)
    assert _values(0.1, "sync", 4, "one") == pytest.approx([1, 0.9, 0.81, 0.729], rel=1e-6)
    warm = hvd.Pipelined(k=2, warmup_steps=2)
    assert _values(0.1, warm, 6, "warm") == pytest.approx([1, 0.9, 0.81, 0.81, 0.729, 0.648], rel=1e-6)


@pytest.mark.parametrize("k", first_of(range(1, 5), 2))
@keras_ranks(2)
def test_stability_bounds_are_met_from_both_sides(rank: int, size: int, k: int) -> None:
    bound = 2 * math.sin(math.pi / (4 * k - 2))
    below, above = (
        max(map(abs, _values(factor * bound, hvd.Pipelined(k=k), 1200, f"bound{k}{factor}")[-8 * k :]))
        for factor in (0.98, 1.02)
    )
    assert below < 1 < above


def _data(rank: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(rank)
    return generator.normal(size=(48, 7)).astype(np.float32), generator.integers(0, 3, 48)


def _model(exchange: Any, name: str, optimizer: Any = None, **choices: Any) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(5, "relu"), keras.layers.Dense(3)])
    chosen = optimizer if optimizer is not None else keras.optimizers.Adam(0.01)
    model.compile(
        hvd.DistributedOptimizer(chosen, name=name, exchange=exchange, **choices),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def _fit(model: Any, rank: int, epochs: int = 1, callbacks: Any = ()) -> None:
    model.fit(*_data(rank), batch_size=8, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks))


@keras_ranks(3, more=(2,))
def test_fit_leaves_out_the_first_update_only(rank: int, size: int) -> None:
    model = _model("pipelined", "fitted", groups=2)
    _fit(model, rank, epochs=2)
    assert int(numpy(model.optimizer.iterations)) == 11
    same_everywhere([*model.weights, *model.optimizer.variables], "fitted.same")
    _fit(model, rank, callbacks=[hvd.callbacks.DrainCallback()])
    assert int(numpy(model.optimizer.iterations)) == 18
    _fit(model, rank, epochs=2, callbacks=[hvd.callbacks.DrainCallback("epoch_end")])
    assert int(numpy(model.optimizer.iterations)) == 30
    same_everywhere([*model.weights, *model.optimizer.variables], "fitted.drained")


@pytest.mark.parametrize(("k", "warmup"), [more(2, 0), (3, 1), more(2, 9)])
@keras_ranks(2)
def test_resumed_run_goes_on_bit_for_bit(rank: int, size: int, tmp_path: Path, k: int, warmup: int) -> None:
    """Saved after 6 of 12 steps and loaded by a new model: equal to an uninterrupted training, bit for bit."""
    label = f"resumed{k}{warmup}"
    exchange = hvd.Pipelined(k=k, warmup_steps=warmup)
    whole = _model(exchange, f"{label}.whole")
    _fit(whole, rank, epochs=2)
    first = _model(exchange, f"{label}.first")
    _fit(first, rank)
    path = tmp_path / f"{label}.{rank}.keras"
    first.save(path)
    state = pickle.dumps(first.optimizer.in_flight())
    _fit(first, rank)  # saving has changed nothing
    second = hvd.load_model(path, name=f"{label}.second", exchange=exchange)
    second.optimizer.load_in_flight(pickle.loads(state))
    _fit(second, rank)
    for model in (first, second):
        mine = [*model.weights, *model.optimizer.variables]
        for here, there in zip(mine, [*whole.weights, *whole.optimizer.variables], strict=True):
            np.testing.assert_array_equal(numpy(here), numpy(there), err_msg=label)


@keras_ranks(2)
def test_loss_scale_that_changes_meanwhile(rank: int, size: int) -> None:
    """An overflow of one step leaves out the update that its gradients are for, on all ranks, and no other."""
    w = keras.Variable(np.zeros(3, np.float32))
    scaling = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), 1024.0, dynamic_growth_steps=3)
    optimizer = hvd.DistributedOptimizer(scaling, op=hvd.Sum, name="scaled", exchange="pipelined")
    optimizer.build([w])
    applied, factors = 0.0, set()
    for step in range(12):
        factor = float(numpy(optimizer.dynamic_scale))
        factors.add(factor)
        gradient = np.full(3, np.inf if step == 5 and rank == 1 else factor * (step + 1), np.float32)
        optimizer.apply([keras.ops.convert_to_tensor(gradient)])
        if step > 0 and step - 1 != 5:
            applied += 2 * step
        assert numpy(w).tolist() == [-applied] * 3, (step, numpy(w), applied, factors)
    assert len(factors) > 1
    assert optimizer.drain() == 1
    assert numpy(w).tolist() == [-applied - 24.0] * 3


@keras_ranks(2)
def test_sparse_gradients(rank: int, size: int) -> None:
    model = keras.Sequential([keras.layers.Embedding(6, 2, embeddings_initializer="zeros"), keras.layers.Flatten()])
    model.build((None, 1))
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), op=hvd.Sum, name="embedded", exchange="pipelined"),
        loss=lambda _, found: keras.ops.sum(found),
    )
    expected = np.zeros((6, 2), np.float32)
    for step in range(5):
        model.train_on_batch(np.array([[(step + rank) % 6]]), np.zeros((1, 2), np.float32))
        if step:
            for other in range(size):
                expected[(step - 1 + other) % 6] -= 1
        np.testing.assert_array_equal(numpy(model.weights[0]), expected)
    assert model.optimizer.drain() == 1


@keras_ranks(2)
def test_what_is_refused(rank: int, size: int, tmp_path: Path) -> None:
    unknown: list[Any] = ["pipelind", hvd.Pipelined]
    for one in unknown:
        with pytest.raises(UserError, match="not known"):
            hvd.DistributedOptimizer(keras.optimizers.SGD(), exchange=one)
    accumulating = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    optimizer, variables = (
        hvd.DistributedOptimizer(accumulating, name="own", exchange="pipelined"),
        variables_from_one(),
    )
    values = gradients(rank, 0)
    with pytest.raises(UserError, match="backward_passes_per_step"):
        apply(optimizer, variables, values)
    # Other variables while gradients are in flight.
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), name="fewer", exchange="pipelined")
    apply(optimizer, variables, values)
    with pytest.raises(UserError, match="2 variables have gradients, 3 had them"):
        apply(optimizer, variables[:2], values[:2])
    assert optimizer.drain() == 1
    apply(optimizer, variables[:2], values[:2])
    with pytest.raises(UserError, match="expected gradients in flight of k=3, found those of k=2"):
        other = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), exchange=hvd.Pipelined(k=3))
        other.build(variables)
        other.load_in_flight(optimizer.in_flight())
    # A drain on one rank only.
    paceline.native.agreement.MEET_LIMIT_S = 2.0
    if rank == 0:
        with pytest.raises(UserError, match=r"Rank 0 waited(.|\n)*not all ranks came within 2 s"):
            optimizer.drain()
        (tmp_path / "notified").touch()
    else:
        ByHand.wait((tmp_path / "notified").exists)
    hvd.shutdown()


@keras_ranks(3)
def test_ranks_with_different_exchanges_are_reported_on_every_rank(rank: int, size: int) -> None:
    exchange = hvd.Pipelined(k=2 + rank)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), name="different", exchange=exchange)
    with pytest.raises(UserError) as caught:
        apply(optimizer, variables_from_one(), gradients(rank, 0))
    hvd.shutdown()
    least, most, mine = (list(agreement(Pipelined(k=k), 3)) for k in (2, 4, 2 + rank))
    assert f"from {least} to {most}; rank {rank} has {mine}" in str(caught.value)
