"""paceline.keras in fit(): training, callbacks, saving and elastic state, on both backends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import paceline.keras as hvd
from integration_tests.support.keras_worlds import assert_near, keras_ranks, numpy, same_everywhere
from paceline.errors import UserError

BATCH = 6
STEPS = 4


def _data(seed: int, samples: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(samples, 3)).astype(np.float32)
    return x, (x @ np.array([[1.0], [-2.0], [0.5]]) + 0.25).astype(np.float32)


def _model(seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(1)])


def _my_share(rank: int, size: int) -> tuple[Any, Any, Any, Any]:
    """All batches, and this rank's part of each: ranks with their parts do what one process does with the whole."""
    x, y = _data(1, BATCH * size * STEPS)
    split = (STEPS, size, BATCH)
    part_x, part_y = x.reshape(*split, 3)[:, rank].reshape(-1, 3), y.reshape(*split, 1)[:, rank].reshape(-1, 1)
    return x, y, part_x, part_y


@keras_ranks(2)
def test_fit_equals_one_process_on_whole_batches(rank: int, size: int) -> None:
    x, y, mine_x, mine_y = _my_share(rank, size)
    alone = _model(0)
    alone.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss="mse")
    once = alone.fit(x, y, batch_size=BATCH * size, epochs=2, shuffle=False, verbose=0).history["loss"]
    for eagerly in (False, True):
        name = f"whole{eagerly}"
        model = _model(rank)  # ranks start differently: the broadcast makes them equal to rank 0
        model.compile(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), name=name),
            loss="mse",
            run_eagerly=eagerly,
        )
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
        losses = []
        for epoch in range(2):  # several calls of fit() go on where the last one stopped
            options = {"initial_epoch": epoch, "epochs": epoch + 1, "callbacks": callbacks}
            history = model.fit(mine_x, mine_y, batch_size=BATCH, shuffle=False, verbose=0, **options)
            losses += history.history["loss"]
        np.testing.assert_allclose(losses, once, rtol=1e-4)
        assert_near(model.weights, alone.weights, rtol=2e-4, atol=1e-5)
        same_everywhere([*model.weights, *model.optimizer.variables], f"{name}.same")


@keras_ranks(2)
def test_embeddings_with_different_words_on_each_rank(rank: int, size: int) -> None:
    for dense in (False, True):
        keras.utils.set_random_seed(5)
        model = keras.Sequential(
            [keras.layers.Input((2,), dtype="int32"), keras.layers.Embedding(7, 4), keras.layers.Dense(1)]
        )
        before = numpy(model.weights[0])
        model.compile(
            hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name=f"embedding{dense}", sparse_as_dense=dense),
            loss="mse",
        )
        words = np.array([[rank, 3]], np.int32)  # 3 on all ranks, others on one
        model.train_on_batch(words, np.ones((1, 2, 1), np.float32))
        moved = np.flatnonzero(np.any(numpy(model.weights[0]) != before, axis=1))
        np.testing.assert_array_equal(moved, [*range(size), 3])
        same_everywhere(model.weights, f"embedding{dense}.same")


@keras_ranks(2)
def test_mixed_precision_overflow_skips_the_step_everywhere(rank: int, size: int) -> None:
    x, y = _data(20 + rank, BATCH)
    bad = x.copy()
    if rank == 1:
        bad[0, 0] = np.inf
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = _model(6)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.05), name="mixed"), loss="mse")
        assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
        model.train_on_batch(x, y)
        before = [numpy(weight) for weight in model.weights]
        scale = float(numpy(model.optimizer.dynamic_scale))
        model.train_on_batch(bad, y)
        for old, weight in zip(before, model.weights, strict=True):
            np.testing.assert_array_equal(old, numpy(weight))
        assert float(numpy(model.optimizer.dynamic_scale)) == scale / 2
        model.train_on_batch(x, y)
        assert any(np.any(old != numpy(weight)) for old, weight in zip(before, model.weights, strict=True))
        same_everywhere([*model.weights, *model.optimizer.variables], "mixed.same")
    finally:
        keras.config.set_dtype_policy("float32")


@keras_ranks(2)
def test_learning_rate_callbacks(rank: int, size: int) -> None:
    x, y = _data(30 + rank, BATCH * STEPS)
    rates: list[float] = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            rates.append(float(numpy(self.model.optimizer.learning_rate)))

    def fit(epochs: int, *callbacks: Any) -> Any:
        model = _model(7)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5, momentum=0.9), name="rates"), loss="mse")
        rates.clear()
        return model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[*callbacks, Watch()])

    history = fit(3, hvd.callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=2))
    ahead = [(batch + 1) / STEPS for batch in range(2 * STEPS)]
    np.testing.assert_allclose(rates, [0.4 / size * (e * (size - 1) / 2 + 1) for e in ahead] + [0.4] * STEPS, rtol=1e-5)
    np.testing.assert_allclose(history.history["lr"], [0.3, 0.4, 0.4], rtol=1e-5)

    schedule = hvd.callbacks.LearningRateScheduleCallback
    fit(4, schedule(0.4, lambda epoch: 1 / (1 + epoch), end_epoch=2), schedule(0.1, 0.5, start_epoch=2))
    np.testing.assert_allclose(rates[::STEPS], [0.4, 0.2, 0.1, 0.05], rtol=1e-5)

    # Momentum correction: velocity has the rate in it, and follows.
    model = _model(8)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.4, momentum=0.9), name="velocity"), loss="mse")
    model.train_on_batch(x, y)
    before = [numpy(velocity) for velocity in model.optimizer.momentums]
    callback = schedule(0.1, lambda epoch: 1.0)
    callback.set_model(model)
    callback.on_epoch_begin(0)
    callback.on_train_batch_begin(0)
    for old, new in zip(before, model.optimizer.momentums, strict=True):
        np.testing.assert_allclose(numpy(new), old / 4, rtol=1e-5)

    scheduled = _model(9)
    decay = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    scheduled.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(decay), name="fixed"), loss="mse")
    with pytest.raises(UserError, match="LearningRateSchedule"):
        scheduled.fit(x, y, verbose=0, callbacks=[schedule(0.1, 0.5)])


_LOAD_ALONE = """
import sys, numpy, keras
model = keras.models.load_model(sys.argv[1])
assert not any(name.split(".")[0] in ("horovod", "paceline") for name in sys.modules)
assert type(model.optimizer).__name__ == "Adam", type(model.optimizer)
x, y = numpy.load(sys.argv[2]).values()
model.fit(x, y, epochs=1, verbose=0)
"""


@keras_ranks(2)
def test_best_model_is_saved_once_by_the_averaged_metric(rank: int, size: int, tmp_path: Path) -> None:
    path = tmp_path / f"of-rank-{rank}.keras"
    model = _model(10)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1), name="best"), loss="mse")
    checkpoint = hvd.callbacks.BestModelCheckpoint(monitor="quality", mode="min", filepath=path)
    checkpoint.set_model(model)
    checkpoint.on_train_begin()
    saved = []
    # Averages 5, 4, 6, 3; alone, rank 0 would find 9, 3, 2, 5.
    for epoch, (mine, other) in enumerate([(9.0, 1.0), (3.0, 5.0), (2.0, 10.0), (5.0, 1.0)]):
        path.unlink(missing_ok=True)
        checkpoint.on_epoch_begin(epoch)
        checkpoint.on_epoch_end(epoch, {"quality": mine if rank == 0 else other})
        saved.append(path.exists())
    assert saved == ([True, True, False, True] if rank == 0 else [False] * 4)


@keras_ranks(2)
def test_saved_models_load_with_and_without_horovod(rank: int, size: int, tmp_path: Path) -> None:
    x, y = _data(40 + rank, BATCH * STEPS)
    path = tmp_path / "model.keras"
    model = _model(11)
    # Built here, not in fit(): the state is in the file all the same.
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1), name="saving"), loss="mse")
    model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    if rank == 0:
        model.save(path)
        np.savez(tmp_path / "data.npz", x=x, y=y)
    hvd.allreduce(np.zeros(1, np.float32), name="saving.done")
    loaded = hvd.load_model(path, name="loaded")
    assert int(numpy(loaded.optimizer.iterations)) == STEPS
    assert type(loaded.optimizer).__mro__[1].__name__ == "Distributed"
    for one in (model, loaded):
        one.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    assert_near(model.weights, loaded.weights, rtol=1e-5, atol=0)
    same_everywhere([*loaded.weights, *loaded.optimizer.variables], "saving.same")
    if rank == 0:
        command = [sys.executable, "-c", _LOAD_ALONE, str(path), str(tmp_path / "data.npz")]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
        assert result.returncode == 0, result.stderr


@keras_ranks(2)
def test_broadcast_leaves_each_rank_its_random_numbers(rank: int, size: int) -> None:
    keras.utils.set_random_seed(100 + rank)
    model = keras.Sequential([keras.layers.Input((50,)), keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), name="random"), loss="mse")
    x, y = np.ones((4, 50), np.float32), np.ones((4, 1), np.float32)
    model.fit(x, y, verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    same_everywhere(model.weights, "random.same")
    dropped = hvd.allgather_object(numpy(model.layers[0](x, training=True)), name="random.dropped")
    assert np.any(dropped[0] != dropped[1]), "all ranks drop the same units"


@keras_ranks(2)
def test_elastic_state(rank: int, size: int) -> None:
    x, y = _data(50 + rank, BATCH * STEPS)
    model = _model(60 + rank)
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.Adam(0.1), name="elastic", backward_passes_per_step=2), loss="mse"
    )
    state = hvd.elastic.KerasState(model, batch=rank, epoch=10 + rank)
    state.sync()
    assert (state.batch, state.epoch) == (0, 10)
    same_everywhere([*model.weights, *model.optimizer.variables], "elastic.synced")
    before = [numpy(variable) for variable in [*model.weights, *model.optimizer.variables]]
    callbacks = [hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.UpdateEpochStateCallback(state)]
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=callbacks)
    assert (state.batch, state.epoch) == (0, 12)
    state.restore()
    assert state.epoch == 10
    for old, variable in zip(before, [*model.weights, *model.optimizer.variables], strict=True):
        np.testing.assert_array_equal(old, numpy(variable))
    # A rank that has accumulated one of two gradients when others arrive must not be ahead of them.
    if rank == 1:
        grads = [keras.ops.zeros(variable.shape) for variable in model.trainable_variables]
        model.optimizer.apply(grads, model.trainable_variables)
    state.sync()
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
    same_everywhere(model.weights, "elastic.same")
