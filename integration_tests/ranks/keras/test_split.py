"""The split exchange of Keras: each rank updates its own variables; weights equal those of one process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import paceline.keras as hvd
from integration_tests.support.keras_worlds import (
    BACKENDS,
    assert_near,
    compiled_or_not,
    keras_ranks,
    numpy,
    same_everywhere,
)
from integration_tests.support.ranks import ranks, run_ranks
from paceline.errors import UserError

STEPS, BATCH = 4, 4


def _model(seed: int = 7, widths: tuple[int, ...] = (150, 151, 40)) -> Any:
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(width, "tanh") for width in widths]
    return keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(1)])


def _data(size: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(3)
    x = generator.normal(size=(STEPS * size * BATCH, 3)).astype(keras.config.floatx())
    return x, (x @ np.array([[1.0], [-2.0], [0.5]]) + 0.25).astype(x.dtype)


@contextlib.contextmanager
def _float64() -> Iterator[None]:
    """Context with models of float64: Adam divides small gradients, and their rounding errors, by their size."""
    try:
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")  # earlier models have fixed the default
        yield
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


def _part(whole: Any, rank: int, size: int) -> Any:
    """This rank's part of each batch."""
    return whole.reshape(STEPS, size, BATCH, -1)[:, rank].reshape(STEPS * BATCH, -1)


def _fit(model: Any, optimizer: Any, x: Any, y: Any, batch: int, compiled: bool) -> Any:
    model.compile(optimizer, "mse", run_eagerly=not compiled)
    model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
    return model


class _Both:
    """A model on all ranks, and the same in one process that has their data."""

    def __init__(
        self, rank: int, size: int, name: str, make: Callable[[], Any], compiled: bool, **choices: Any
    ) -> None:
        self.rank, self.size, self.name, self.compiled = rank, size, name, compiled
        self.x, self.y = _data(size)
        self.model, self.alone = _model(), _model()
        self.optimizer = hvd.DistributedOptimizer(make(), name=name, exchange="split", **choices)
        self.plain = make()

    def train(self) -> _Both:
        x, y = (_part(one, self.rank, self.size) for one in (self.x, self.y))
        _fit(self.model, self.optimizer, x, y, BATCH, self.compiled)
        _fit(self.alone, self.plain, self.x, self.y, BATCH * self.size, self.compiled)
        return self

    def check(self) -> None:
        # On PyTorch three ranks differ by 3e-6 from one process with Adam, under the synchronous exchange, too.
        allowed = 1e-6 if keras.backend.backend() == "tensorflow" else 1e-5
        assert_near(self.model.weights, self.alone.weights, self.name, rtol=1e-6, atol=allowed)
        same_everywhere(self.model.weights, f"{self.name}.same")


def _sgd() -> Any:
    return keras.optimizers.SGD(0.1, momentum=0.9)


def _adam() -> Any:
    return keras.optimizers.Adam(0.01)


def _optimizers() -> dict[str, Callable[[], Any]]:
    o = keras.optimizers
    decay = o.schedules.ExponentialDecay(0.05, decay_steps=2, decay_rate=0.5, staircase=True)
    return {
        "sgd": _sgd,
        "adam": _adam,
        "adamw": lambda: o.AdamW(0.01, weight_decay=0.1),
        "adagrad": lambda: o.Adagrad(0.05),
        "adafactor": lambda: o.Adafactor(0.01),
        "lamb": lambda: o.Lamb(0.01),
        "schedule": lambda: o.SGD(decay),
        "clipnorm": lambda: o.SGD(0.1, clipnorm=0.1),
        "global_clipnorm": lambda: o.SGD(0.1, global_clipnorm=0.1),
        "scaled": lambda: o.LossScaleOptimizer(_sgd(), initial_scale=8.0, dynamic_growth_steps=2),
    }


@keras_ranks(2, 3)
@_float64()
def test_as_one_process(rank: int, size: int) -> None:
    eager = ("sgd", "adam", "global_clipnorm", "scaled") if len(compiled_or_not()) > 1 else tuple(_optimizers())
    for compiled in compiled_or_not():
        for name, make in _optimizers().items():
            if compiled or name in eager:
                _Both(rank, size, f"{name}{compiled}", make, compiled).train().check()


@keras_ranks(2, 3)
def test_each_rank_has_the_slots_of_its_own_variables(rank: int, size: int) -> None:
    both = _Both(rank, size, "slots", _adam, compiled_or_not()[-1]).train()
    mine = sum(int(np.prod(one.shape)) for one in both.optimizer._momentums)
    whole = sum(int(np.prod(one.shape)) for one in both.model.trainable_variables)
    everyone = hvd.allgather_object(mine, name="slots.shares")
    assert sum(everyone) == whole, "each element's slot is on one rank"
    # The largest of the variables, which are not cut, has 0.77 of all elements.
    assert max(everyone) < 0.8 * whole, everyone
    assert len(both.optimizer.variables) == len(both.plain.variables)


@keras_ranks(2, 3)
@_float64()
def test_two_ranks_have_the_bits_of_the_synchronous_exchange(rank: int, size: int) -> None:
    x, y = (_part(one, rank, size) for one in _data(size))
    found = []
    for exchange in ("sync", "split"):
        wrapped = hvd.DistributedOptimizer(_adam(), name=f"bits.{exchange}", exchange=exchange)
        found.append(_fit(_model(), wrapped, x, y, BATCH, compiled_or_not()[-1]).weights)
    for here, there in zip(*found, strict=True):
        if size == 2:
            np.testing.assert_array_equal(numpy(here), numpy(there))
        else:
            np.testing.assert_allclose(numpy(here), numpy(there), rtol=1e-12, atol=1e-12)


@keras_ranks(3)
def test_ranks_without_variables_and_frozen_variables(rank: int, size: int) -> None:
    x, y = _data(size)
    for compiled in compiled_or_not():
        found = []
        for wrap in (True, False):
            model = _model(widths=())  # two variables in one bucket: two ranks own nothing
            other = _model(widths=(4, 4))
            other.layers[1].trainable = False
            for number, one in enumerate((model, other)):
                label = f"few.{compiled}.{number}"
                held = keras.optimizers.Adam(0.01, global_clipnorm=0.1)
                optimizer = hvd.DistributedOptimizer(held, name=label, exchange="split") if wrap else held
                if wrap:
                    _fit(one, optimizer, _part(x, rank, size), _part(y, rank, size), BATCH, compiled)
                else:
                    _fit(one, optimizer, x, y, BATCH * size, compiled)
            found.append([*model.weights, *other.weights])
        assert_near(found[0], found[1], f"few {compiled}", rtol=2e-5, atol=2e-6)


@keras_ranks(2, 3)
def test_an_overflow_on_one_rank_skips_the_step_on_all(rank: int, size: int) -> None:
    for owner_overflows in (False, True):
        variables = [keras.Variable(np.full(20_000 + place, 1.0, np.float32)) for place in range(4)]
        scaling = keras.optimizers.LossScaleOptimizer(_sgd(), initial_scale=8.0)
        optimizer = hvd.DistributedOptimizer(scaling, name=f"overflow {owner_overflows}", exchange="split")
        grads = [np.ones(one.shape, np.float32) for one in variables]
        if rank == (size - 1 if owner_overflows else 0):
            grads[0][3] = np.inf
        optimizer.apply([keras.ops.convert_to_tensor(one) for one in grads], variables)
        for one in variables:
            np.testing.assert_array_equal(numpy(one), 1.0)
        assert float(optimizer.dynamic_scale.numpy() if hasattr(optimizer.dynamic_scale, "numpy") else 0) == 4.0
        grads = [np.full(one.shape, 4.0, np.float32) for one in variables]
        optimizer.apply([keras.ops.convert_to_tensor(one) for one in grads], variables)
        for one in variables:
            np.testing.assert_allclose(numpy(one), 0.9, rtol=1e-6)


@keras_ranks(2)
@_float64()
def test_accumulation_and_weights(rank: int, size: int) -> None:
    for compiled in compiled_or_not():
        both = _Both(
            rank, size, f"passes{compiled}", _sgd, compiled,
            backward_passes_per_step=2, average_aggregated_gradients=True,
        )  # fmt: skip
        x, y = (_part(one, rank, size) for one in (both.x, both.y))
        _fit(both.model, both.optimizer, x, y, BATCH, compiled)
        # Two updates of a process that has both batches of all ranks.
        _fit(both.alone, both.plain, both.x, both.y, 2 * BATCH * size, compiled)
        both.check()
        weighted = _Both(rank, size, f"weights{compiled}", _sgd, compiled, weight=2.0)
        weighted.train().check()


def _save(rank: int, size: int, folder: Path) -> None:
    """Train, save on rank 0, continue; then load on all ranks and on one process, and continue."""
    x, y = _data(size)
    here = _part(x, rank, size), _part(y, rank, size)
    wrapped = hvd.DistributedOptimizer(_adam(), name="saved", exchange="split")
    model = _fit(_model(), wrapped, here[0], here[1], BATCH, True)
    with pytest.raises(UserError, match=r"has the state of its own variables only(?s:.*)consolidate_state_dict"):
        model.save(folder / f"refused{rank}.keras")
    model.optimizer.consolidate_state_dict()
    if rank == 0:
        model.save(folder / "model.keras")
        model.save_weights(folder / "model.weights.h5")
    hvd.allgather_object(rank, name="saved.written")
    model.fit(*here, batch_size=BATCH, shuffle=False, verbose=0)
    with pytest.raises(UserError, match="has the state of its own variables only"):
        model.save(folder / f"refused{rank}.keras")
    loaded = hvd.load_model(folder / "model.keras", name="loaded", exchange="split")
    loaded.fit(*here, batch_size=BATCH, shuffle=False, verbose=0)
    assert min(int(np.prod(one.shape)) for one in loaded.optimizer._velocities) == 0
    taken = _model()
    taken.compile(hvd.DistributedOptimizer(_adam(), name="taken", exchange="split"), "mse")
    taken.optimizer.build(taken.trainable_variables)
    taken.load_weights(folder / "model.weights.h5")
    taken.fit(*here, batch_size=BATCH, shuffle=False, verbose=0)
    plain = keras.models.load_model(folder / "model.keras")
    plain.fit(x, y, batch_size=BATCH * size, shuffle=False, verbose=0)
    alone = _model(seed=5)
    root = hvd.load_model(folder / "model.keras", name="root", exchange="split") if rank == 0 else alone
    if rank:
        root.compile(hvd.DistributedOptimizer(_adam(), name="root", exchange="split"), "mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    root.fit(*here, batch_size=BATCH, shuffle=False, verbose=0, callbacks=callbacks)
    for one, name in ((loaded, "loaded"), (taken, "taken"), (plain, "plain"), (root, "root")):
        assert_near(one.weights, model.weights, name, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("on", BACKENDS)
def test_files_have_the_whole_state(tmp_path: Path, on: str) -> None:
    run_ranks(_save, 2, tmp_path, env={"KERAS_BACKEND": on})


@keras_ranks(2)
def test_what_it_refuses(rank: int, size: int) -> None:
    class Own(keras.optimizers.SGD):
        pass

    o = keras.optimizers
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (o.Nadam(), {}, "Nadam, whose variables have a state in common"),
        (o.SGD(use_ema=True), {}, "use_ema=True"),
        (o.SGD(gradient_accumulation_steps=2), {}, r"gradient_accumulation_steps=2(?s:.*)backward_passes_per_step="),
        (o.SGD(), {"groups": 2}, "groups=, but owners decide"),
        (o.SGD(), {"codec": "q8"}, "a codec of gradients"),
        (Own(), {}, r"Own, of which nobody has said(?s:.*)hvd.Split\(independent=True\)"),
    ]
    for optimizer, choices, text in refused:
        with pytest.raises(UserError, match=text):
            hvd.DistributedOptimizer(optimizer, exchange="split", **choices)
    hvd.DistributedOptimizer(Own(), name="own", exchange=hvd.Split(independent=True))


@ranks(2, env={"KERAS_BACKEND": "tensorflow"}, hvd="paceline.tensorflow")
def test_tapes_refuse_it(rank: int, size: int, hvd: Any) -> None:
    for exchange in ("split", hvd.Split()):
        with pytest.raises(UserError, match=r'it does not know the optimizer(?s:.*)exchange="sync"'):
            hvd.DistributedGradientTape(tf.GradientTape(), exchange=exchange)
