"""Features of Keras, and of tapes, under each exchange that waits for all: what one process makes of the same data.

A feature is a function that trains a model and returns its weights; `wrap` makes its optimizer (its tape) a
distributed one, or leaves it. Cells of the table run one after the other in one world: `make test` has the diagonals,
in which every feature and every exchange occurs, `make test-more` has the rest.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

import paceline.keras as hvd
from integration_tests.support.keras_worlds import numpy
from integration_tests.support.ranks import run_ranks
from paceline.errors import UserError

STEPS, BATCH = 6, 3
TOLERANCE = 1e-6
EXCHANGES = ("sync", "pipelined K=1", "quorum = all", "split", "sync + optimal")

Arrays = list[np.ndarray[Any, Any]]
Wrap = Callable[[Any], Any]


def _model(outputs: int = 1, kind: Any = None) -> Any:
    keras.utils.set_random_seed(11)
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(5, "tanh")(inputs)
    heads = [keras.layers.Dense(1, name=f"head{number}")(hidden) for number in range(outputs)]
    return (kind or keras.Model)(inputs, heads if outputs > 1 else heads[0])


def _momentum() -> Any:
    return keras.optimizers.SGD(0.1, momentum=0.9)


def _fit(model: Any, x: Any, y: Any, batch: int) -> Arrays:
    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
    _collect(model)
    state: dict[str, Any] = {}
    model.optimizer.save_own_variables(state)
    return [*(numpy(one) for one in model.weights), *state.values()]


def _collect(model: Any) -> None:
    """Give all ranks the whole state of an optimizer that they share."""
    getattr(model.optimizer, "consolidate_state_dict", lambda to: None)(None)


def _plain(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path, optimizer: Any = None, **choices: Any) -> Arrays:
    model = _model()
    model.compile(wrap(optimizer or _momentum()), "mse", **choices)
    return _fit(model, x, y, batch)


def _outputs(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path) -> Arrays:
    model = _model(2)
    model.compile(wrap(_momentum()), ["mse", "mae"], loss_weights=[1.0, 0.3])
    return _fit(model, x, [y, 2 * y + x[:, :1]], batch)


def _train_step(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path) -> Arrays:
    class Own(keras.Model):
        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            if keras.backend.backend() == "tensorflow":
                import tensorflow as tf

                with tf.GradientTape() as tape:
                    loss = keras.ops.mean(keras.ops.log(keras.ops.cosh(self(x, training=True) - y)))
                self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
                return {"loss": loss}

            self.zero_grad()
            loss = keras.ops.mean(keras.ops.log(keras.ops.cosh(self(x, training=True) - y)))
            loss.backward()
            with torch.no_grad():
                grads = [variable.value.grad for variable in self.trainable_variables]
                self.optimizer.apply(grads, self.trainable_variables)
            return {"loss": loss}

    model = _model(kind=Own)
    model.compile(wrap(_momentum()))
    return _fit(model, x, y, batch)


def _eagerly(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path) -> Arrays:
    return _plain(wrap, x, y, batch, folder, run_eagerly=True)


def _many_steps(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path) -> Arrays:
    return _plain(wrap, x, y, batch, folder, steps_per_execution=4)


def _ema(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path) -> Arrays:
    averaging = keras.optimizers.Adam(0.05, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=4)
    return _plain(wrap, x, y, batch, folder, averaging)


def _loss_scaling(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path) -> Arrays:
    scaling = keras.optimizers.LossScaleOptimizer(_momentum(), initial_scale=8.0, dynamic_growth_steps=2)
    return _plain(wrap, x, y, batch, folder, scaling)


def _weights_only(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path) -> Arrays:
    """The second half of the steps is made by another model, from a file."""
    path, half = folder / "half.weights.h5", len(x) // 2
    model = _model()
    model.compile(wrap(_momentum()), "mse")
    _fit(model, x[:half], y[:half], batch)
    _collect(model)
    model.save_weights(path)
    other = _model()
    other.compile(wrap(_momentum()), "mse")
    other.optimizer.build(other.trainable_variables)
    other.load_weights(path)
    return _fit(other, x[half:], y[half:], batch)


FEATURES: dict[str, Callable[..., Arrays]] = {
    "several outputs": _outputs,
    "custom train_step": _train_step,
    "run_eagerly": _eagerly,
    "steps_per_execution": _many_steps,
    "EMA": _ema,
    "loss scaling": _loss_scaling,
    "weights-only files": _weights_only,
}


def _tape_weights() -> Any:
    start = np.random.default_rng(5)
    return [tf.Variable(start.normal(size=shape)) for shape in [(3, 5), (5,), (5, 1)]]


def _tape_loss(weights: Any, x: Any, y: Any) -> Any:
    first, bias, second = weights
    return tf.reduce_mean((tf.tanh(x @ first + bias) @ second - y) ** 2)


def _tape_steps(step: Callable[[Any, Any], Any], x: Any, y: Any, batch: int, weights: Any) -> Arrays:
    for start in range(0, len(x), batch):
        grads = step(tf.constant(x[start : start + batch]), tf.constant(y[start : start + batch]))
        for grad, weight in zip(grads, weights, strict=True):
            weight.assign_sub(0.2 * grad)
    return [weight.numpy() for weight in weights]


def _tape(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path, compiled: bool = True, **choices: Any) -> Arrays:
    weights = _tape_weights()

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = _tape_loss(weights, x, y)
        return wrap(tape).gradient(loss, weights)

    return _tape_steps(tf.function(step, **choices) if compiled else step, x, y, batch, weights)


def _tape_eagerly(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path) -> Arrays:
    return _tape(wrap, x, y, batch, folder, compiled=False)


def _tape_persistent(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path) -> Arrays:
    """One tape asked twice for gradients of the same sources, in a graph and eagerly."""
    results: Arrays = []
    for compiled in (True, False):
        weights = _tape_weights()

        def step(x: Any, y: Any, weights: Any = weights) -> Any:
            with tf.GradientTape(persistent=True) as tape:
                loss = _tape_loss(weights, x, y)
                penalty = tf.add_n([tf.reduce_sum(weight**2) for weight in weights]) * tf.reduce_mean(x**2)
            tape = wrap(tape)
            pairs = zip(tape.gradient(loss, weights), tape.gradient(penalty, weights), strict=True)
            return [one + 0.01 * other for one, other in pairs]

        results += _tape_steps(tf.function(step) if compiled else step, x, y, batch, weights)
    return results


def _tape_nested(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path) -> Arrays:
    """The gradient of a gradient's length (a gradient penalty), within tf.function."""
    weights = _tape_weights()

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = _tape_loss(weights, x, y)
                # Of each sample by itself, so that a mean over samples is one over ranks.
                samples = tf.cast(tf.shape(x)[0], x.dtype) * loss
            slope = inner.gradient(samples, x)
            total = loss + 0.1 * tf.reduce_mean(slope**2)
        return wrap(outer).gradient(total, weights)

    return _tape_steps(step, x, y, batch, weights)


def _tape_retraced(wrap: Wrap, x: Any, y: Any, batch: int, folder: Path) -> Arrays:
    """Batches of other sizes, each with a separate trace, then again sizes that were traced before."""
    weights = _tape_weights()

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = _tape_loss(weights, x, y)
        return wrap(tape).gradient(loss, weights)

    steps = len(x) // batch
    for number, repeats in enumerate((1, 2, 3, 1, 2, 3)):
        at = (number % steps) * batch
        grads = step(
            *(tf.constant(np.concatenate([part[at : at + batch]] * repeats)) for part in (x, y)),
        )
        for grad, weight in zip(grads, weights, strict=True):
            weight.assign_sub(0.2 * grad)
    return [weight.numpy() for weight in weights]


TAPES: dict[str, Callable[..., Arrays]] = {
    "tape in a function": _tape,
    "tape, eagerly": _tape_eagerly,
    "persistent tape": _tape_persistent,
    "nested tapes": _tape_nested,
    "retraced tape": _tape_retraced,
}

# Keras has it for TensorFlow only.
NOT_ON_TORCH = ["steps_per_execution"]
# Refused, with a reason: late gradients would have another scale (paceline.partial.exchange); a rank has no averages of
# other ranks' variables (paceline.keras3.sharded).
REFUSED = {("loss scaling", "quorum = all"), ("EMA", "split")}

Cells = list[tuple[str, str]]


def _data(size: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(3)
    x = generator.normal(size=(STEPS * size * BATCH, 3))
    return x, x @ np.array([[1.0], [-2.0], [0.5]]) + 0.25


def _part(whole: Any, rank: int, size: int) -> Any:
    """This rank's part of each batch."""
    return whole.reshape(STEPS, size, BATCH, -1)[:, rank].reshape(STEPS * BATCH, -1)


def _wrapping(feature: str, exchange: str, size: int) -> Wrap:
    wrapper: Any = hvd.DistributedOptimizer
    if feature in TAPES:
        # Not loaded where Keras runs on PyTorch.
        wrapper = importlib.import_module("paceline.tensorflow").DistributedGradientTape
    others: dict[str, Any] = {"pipelined K=1": hvd.Pipelined(k=1), "quorum = all": hvd.Partial(quorum=size)}
    chosen = others.get(exchange, "split" if exchange == "split" else "sync")
    fusion = "optimal" if exchange.endswith("optimal") else None
    return lambda one: wrapper(one, name=f"{feature} {exchange}", exchange=chosen, fusion=fusion)


def _compare(rank: int, size: int, folder: Path, cells: Cells) -> None:
    usual = keras.config.floatx()
    keras.config.set_floatx("float64")  # of data, losses and what optimizers count in
    try:
        _compare_in_float64(rank, size, folder, cells)
    finally:
        keras.config.set_floatx(usual)


def _compare_in_float64(rank: int, size: int, folder: Path, cells: Cells) -> None:
    x, y = _data(size)
    alone: dict[str, Arrays] = {}
    found = []
    for number, (feature, exchange) in enumerate(cells):
        train = {**FEATURES, **TAPES}[feature]
        own = folder / f"{rank}.{number}"
        own.mkdir()
        if feature not in alone:
            alone[feature] = train(lambda one: one, x, y, BATCH * size, own)
        wrap = _wrapping(feature, exchange, size)
        if (feature, exchange) in REFUSED:
            with pytest.raises(UserError):
                train(wrap, _part(x, rank, size), _part(y, rank, size), BATCH, own)
            continue
        together = train(wrap, _part(x, rank, size), _part(y, rank, size), BATCH, own)
        for place, (here, there) in enumerate(zip(together, alone[feature], strict=True)):
            assert np.isfinite(there).all(), f"{feature} is no test: it diverges by itself"
            if not np.allclose(here, there, rtol=TOLERANCE, atol=TOLERANCE):
                found.append(f"{feature}, {exchange}: array {place} differs by {np.abs(here - there).max():.3g}")
    assert not found, f"rank {rank}: {found}"


def _cells(features: dict[str, Any]) -> tuple[Cells, Cells]:
    """Cells of the diagonals, and the others; merging by plan comes last, because its plans stay."""
    rows = {feature: number for number, feature in enumerate(features)}
    exchanges = [one for one in EXCHANGES if not (features is TAPES and one == "split")]
    cells = [(feature, exchange) for exchange in exchanges for feature in features]
    diagonal = [
        (feature, exchange)
        for feature, exchange in cells
        if rows[feature] % len(exchanges) == exchanges.index(exchange)
    ]
    return diagonal, [cell for cell in cells if cell not in diagonal]


def _groups() -> list[Any]:
    groups = []
    on_torch = {name: train for name, train in FEATURES.items() if name not in NOT_ON_TORCH}
    for backend, table in (("tensorflow", FEATURES), ("torch", on_torch), ("tensorflow", TAPES)):
        what = "tapes" if table is TAPES else backend
        diagonal, others = _cells(table)
        groups.append(pytest.param(2, backend, diagonal, id=f"{what}-diagonal"))
        for exchange in EXCHANGES:
            row = [cell for cell in others if cell[1] == exchange]
            groups.append(pytest.param(2, backend, row, id=f"{what}-{exchange}", marks=pytest.mark.more))
        groups.append(pytest.param(3, backend, diagonal, id=f"{what}-3ranks", marks=pytest.mark.soak))
    return groups


@pytest.mark.parametrize(("size", "on", "cells"), _groups())
def test_as_one_process(tmp_path: Path, size: int, on: str, cells: Cells) -> None:
    run_ranks(_compare, size, tmp_path, cells, env={"KERAS_BACKEND": on})
