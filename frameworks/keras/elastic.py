"""Elastic training with Keras 3: ranks may join, leave and fail. Horovod's interface, under both backends.

`state = KerasState(model, epoch=0)` holds the values that must be equal on all ranks. A function decorated with `run`
and called with the state trains; it is called again after ranks joined, left or failed. The callbacks commit the state
and count in it.
"""

from __future__ import annotations

import importlib
from typing import Any

from horovod.common.elastic import ObjectState

from paceline.errors import UserError
from paceline.keras.backend import horovod_module as hvd
from paceline.keras.backend import keras, wire
from paceline.keras3.elastic import InFlight
from paceline.keras3.state import broadcast_state, build_optimizer, shared_variables

run: Any = importlib.import_module(f"{hvd.__name__}.elastic").run


class KerasState(ObjectState):
    """Weights of a model, state of its optimizer and values of your own, kept equal on all ranks.

    Args:
        model: a built model.
        optimizer: if it is not the one the model was compiled with.
        **kwargs: values that become attributes; they are saved, restored and synchronised with the rest.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise UserError(
                f"The model {model.name!r} has no variables yet, so there is nothing to keep.",
                "Build it first: model.build(input_shape), or call it on one batch.",
            )
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        build_optimizer(model, self.optimizer)
        self._save_model()
        self._in_flight = InFlight(self.optimizer)
        super().__init__(
            bcast_object=lambda value: wire.broadcast_object(value, 0, "KerasState.values"),
            get_rank=hvd.rank,
            **kwargs,
        )

    def _variables(self) -> list[Any]:
        return shared_variables(self.model, self.optimizer)

    def _save_model(self) -> None:
        self._saved = [keras.ops.copy(variable) for variable in self._variables()]

    def save(self) -> None:
        """Save a copy of everything."""
        self._save_model()
        self._in_flight.save()
        super().save()

    def restore(self) -> None:
        """Restore the last copy."""
        for variable, value in zip(self._variables(), self._saved, strict=True):
            variable.assign(value)
        self._in_flight.restore()
        super().restore()

    def sync(self) -> None:
        """Take rank 0's values, and save a copy of them."""
        self._in_flight.sync(lambda: broadcast_state(self._variables(), 0, "KerasState.variables"))
        self._save_model()
        super().sync()


class CommitStateCallback(keras.callbacks.Callback):
    """Commit `state` every `batches_per_commit` batches and at the end of every epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        """Restart the count: all ranks count from here after ranks joined or left."""
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commit after every `batches_per_commit` batches."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commit."""
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Keep `state.batch` at the last finished batch; 0 at the end of an epoch."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Set `state.batch`."""
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Reset `state.batch`."""
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Keep `state.epoch` at the number of epochs done, also over several calls of fit()."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        """Take the number of epochs done before this call of fit()."""
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Set `state.epoch`."""
        self.state.epoch = self.initial_epoch + epoch + 1


__all__ = ["CommitStateCallback", "KerasState", "UpdateBatchStateCallback", "UpdateEpochStateCallback", "run"]
