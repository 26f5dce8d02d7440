"""hvd.callbacks.ExchangeStatsCallback: statistics of each epoch in Keras' logs, and a line on rank 0."""

from __future__ import annotations

import contextlib
import io
import time
from typing import Any

import keras
import numpy as np
import pytest

import paceline.keras as hvd
from integration_tests.support.keras_worlds import keras_ranks

STEPS = 6


def _fit(exchange: str, name: str, pause_s: float, average: bool, verbose: int) -> tuple[dict[str, list[Any]], str]:
    """The history of two epochs, whose last callbacks see the others' values, and the printed lines."""

    class Slow(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            time.sleep(pause_s)

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), name=name, exchange=exchange), "mse")
    callbacks = [Slow(), hvd.callbacks.ExchangeStatsCallback(verbose=1)]
    callbacks += [hvd.callbacks.MetricAverageCallback()] * average
    callbacks.append(hvd.callbacks.DrainCallback())
    data = np.ones((4 * STEPS, 3), np.float32), np.ones((4 * STEPS, 2), np.float32)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        history = model.fit(*data, batch_size=4, epochs=2, verbose=verbose, callbacks=callbacks)
    return history.history, printed.getvalue()


@keras_ranks(2)
def test_epochs_report_how_often_this_rank_was_in_time(rank: int, size: int) -> None:
    before = hvd.exchange_stats()
    logs, printed = _fit("solo", "shown", 0.1 * rank, False, 2)
    stats = hvd.exchange_stats().since(before)
    # Each epoch has the same number of calls: STEPS of two variables.
    assert sum(logs["exchange_in_time"]) / 2 == pytest.approx(stats.in_time)
    assert sum(logs["exchange_missed"]) <= stats.missed
    assert max(logs["exchange_most_late"]) == stats.most_late
    if rank == 1:
        assert logs["exchange_in_time"][0] < 1 and stats.most_late > 0
    assert "exchange_in_time: " in printed  # Keras' own line
    # Counts all names that this process has used.
    lines = [line for line in printed.splitlines() if "tensors: in time" in line]
    assert [line.split(": ")[0] for line in lines] == ["Epoch 1, rank 0", "Epoch 2, rank 0"] * (rank == 0)

    logs, _ = _fit("solo", "averaged", 0.01 * rank, True, 0)
    everyone = hvd.allgather_object(logs["exchange_in_time"], name="averaged.all")
    assert all(one == everyone[0] for one in everyone)

    logs, printed = _fit("sync", "synchronous", 0.0, False, 0)
    assert logs["exchange_in_time"] == [1, 1] and logs["exchange_most_late"] == [0, 0]
