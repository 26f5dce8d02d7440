"""Names of paceline.keras other than the optimizer: local layers, commits of elastic state, the types of reports."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

import paceline.keras as hvd
from integration_tests.support.keras_worlds import keras_ranks, numpy


@keras_ranks(2)
def test_local_layers_keep_their_gradients(rank: int, size: int) -> None:
    local, shared = keras.layers.Dense(1, use_bias=False), keras.layers.Dense(1, use_bias=False)
    model = keras.Sequential([keras.layers.Input((1,)), local, shared])
    for layer in model.layers:
        layer.kernel.assign([[1.0]])
    optimizer = hvd.PartialDistributedOptimizer(
        keras.optimizers.SGD(1.0), name="local_layers", exchange=hvd.Sync(), local_layers=local
    )
    grads = [keras.ops.convert_to_tensor(np.full((1, 1), rank + 1.0, np.float32)) for _ in range(2)]
    optimizer.apply(grads, model.trainable_variables)
    # Losses are means over all ranks' samples, so a gradient that stays here counts for one rank in `size`.
    np.testing.assert_allclose(numpy(local.kernel), [[1 - (rank + 1) / size]])
    np.testing.assert_allclose(numpy(shared.kernel), [[1 - (size + 1) / 2]])


# Five batches, 0 to 4; after the epoch the batch is 0 again.
@pytest.mark.parametrize(("every", "expected"), [(2, [1, 3, 0]), (1, [0, 1, 2, 3, 4, 0])])
@keras_ranks(2)
def test_state_is_committed_every_few_batches_and_after_the_epoch(
    rank: int, size: int, every: int, expected: list[int]
) -> None:
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), name="commits"), loss="mse")
    state = hvd.elastic.KerasState(model, batch=0)
    committed: list[int] = []

    class State:
        """Replaces the elastic state and records commits."""

        batch = 0

        def commit(self) -> None:
            """Commit the current values."""
            state.batch = self.batch
            state.commit()
            committed.append(self.batch)

    watched: Any = State()
    callbacks = [hvd.elastic.UpdateBatchStateCallback(watched), hvd.elastic.CommitStateCallback(watched, every)]
    x = np.ones((5, 1), np.float32)
    model.fit(x, x, batch_size=1, verbose=0, shuffle=False, callbacks=callbacks)
    trained = numpy(model.layers[0].kernel)
    model.layers[0].kernel.assign([[7.0]])
    state.restore()
    np.testing.assert_array_equal(numpy(model.layers[0].kernel), trained)
    assert committed == expected


@keras_ranks(2)
def test_reports_are_of_the_types_that_are_named(rank: int, size: int) -> None:
    report, stats = hvd.fusion_report(), hvd.exchange_stats()
    assert isinstance(report, hvd.FusionReport)
    assert isinstance(stats, hvd.ExchangeStats)
