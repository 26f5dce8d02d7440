"""Horovod's callbacks, under both backends, and callbacks for exchanges that are not synchronous."""

from __future__ import annotations

from typing import Any

from paceline.errors import UserError
from paceline.keras.backend import horovod_module, keras
from paceline.keras.exchange.in_flight_checkpoint import InFlightCheckpoint as InFlightCheckpoint
from paceline.keras3.callbacks import BestModelCheckpoint as BestModelCheckpoint
from paceline.keras3.callbacks import BroadcastGlobalVariablesCallback as BroadcastGlobalVariablesCallback
from paceline.keras3.callbacks import LearningRateScheduleCallback as LearningRateScheduleCallback
from paceline.keras3.callbacks import LearningRateWarmupCallback as LearningRateWarmupCallback
from paceline.keras3.callbacks import MetricAverageCallback as MetricAverageCallback
from paceline.keras3.optimizer import find
from paceline.partial.stats import reader


class DrainCallback(keras.callbacks.Callback):
    """Apply the updates whose gradients are in flight, for an optimizer with `exchange`. Use it on all ranks.

    `when`: "train_end", or "epoch_end" for the end of every epoch, before callbacks later in the list (such as those
    that save). After a drain the next K - 1 updates are skipped.
    """

    def __init__(self, when: str = "train_end") -> None:
        super().__init__()
        if when not in ("train_end", "epoch_end"):
            raise UserError(f"DrainCallback(when={when!r}) cannot be used.", "Use 'train_end' or 'epoch_end'.")
        self._when = when

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Drain after every epoch, if `when` says so."""
        if self._when == "epoch_end":
            self._drain()

    def on_train_end(self, logs: Any = None) -> None:
        """Drain the remaining updates."""
        self._drain()

    def _drain(self) -> None:
        optimizer = find(self.model.optimizer)
        if optimizer is not None:
            optimizer.drain()


class ExchangeStatsCallback(keras.callbacks.Callback):
    """Report per epoch how often this rank was in time for rounds that do not wait for all (docs/methods/partial.md).

    Adds to the logs, and so to the progress bar, the history and later callbacks: `exchange_in_time`, the share of
    calls in the round they were submitted for; `exchange_missed`, the number of rounds without a fresh contribution of
    this rank; `exchange_most_late`, the delay of the latest call in rounds. Placed before MetricAverageCallback they
    become means over the ranks. Synchronous optimizers have 1, 0 and 0.

    Args:
        verbose: 1 prints hvd.exchange_stats() of the epoch on rank 0.
        process_set: the optimizer's.
    """

    def __init__(self, verbose: int = 0, process_set: Any = horovod_module.global_process_set) -> None:
        super().__init__()
        self._verbose = verbose
        self._process_set = process_set
        self._read = reader(keras.backend.backend())

    def on_train_begin(self, logs: Any = None) -> None:
        """Start counting."""
        self._before = self._read(self._process_set)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Add the epoch's statistics to the logs."""
        now = self._read(self._process_set)
        stats, self._before = now.since(self._before), now
        if logs is not None:
            logs["exchange_in_time"] = stats.in_time
            logs["exchange_missed"] = stats.missed
            logs["exchange_most_late"] = stats.most_late
        if self._verbose and horovod_module.rank() == 0:
            print(f"\nEpoch {epoch + 1}, rank 0: {stats}")


__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "DrainCallback",
    "ExchangeStatsCallback",
    "InFlightCheckpoint",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
