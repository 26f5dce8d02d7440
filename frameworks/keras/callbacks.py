"""Horovod's callbacks, under both backends, and one for pipelined exchanges."""

from __future__ import annotations

from typing import Any

from paceline.errors import UserError
from paceline.keras.backend import horovod_callbacks, keras, wrapping

BroadcastGlobalVariablesCallback = horovod_callbacks.BroadcastGlobalVariablesCallback
MetricAverageCallback = horovod_callbacks.MetricAverageCallback
LearningRateScheduleCallback = horovod_callbacks.LearningRateScheduleCallback
LearningRateWarmupCallback = horovod_callbacks.LearningRateWarmupCallback
BestModelCheckpoint = horovod_callbacks.BestModelCheckpoint


class DrainCallback(keras.callbacks.Callback):
    """Makes the updates whose gradients are in flight, for an optimizer with a pipelined exchange; on all ranks.

    `when`: "train_end", or "epoch_end" for all epochs, before callbacks that come later in the list (such as those that
    save). After a drain the next K - 1 updates are left out.
    """

    def __init__(self, when: str = "train_end") -> None:
        super().__init__()
        if when not in ("train_end", "epoch_end"):
            raise UserError(f"DrainCallback(when={when!r}) cannot be used.", "Use 'train_end' or 'epoch_end'.")
        self._when = when

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Drain after every epoch, if told to."""
        if self._when == "epoch_end":
            self._drain()

    def on_train_end(self, logs: Any = None) -> None:
        """Drain what is left."""
        self._drain()

    def _drain(self) -> None:
        optimizer = wrapping.find(self.model.optimizer)
        if optimizer is not None:
            optimizer.drain()


__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "DrainCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
