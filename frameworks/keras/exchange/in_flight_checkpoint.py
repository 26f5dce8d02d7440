"""Callback that saves gradients in flight next to the model, during fit() of Keras."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from paceline.errors import UserError
from paceline.exchange.in_flight_file import load_in_flight, save_in_flight
from paceline.keras.backend import horovod_module, keras, wire
from paceline.keras3.optimizer import find
from paceline.keras3.state import build_optimizer


class InFlightCheckpoint(keras.callbacks.Callback):
    """Save the gradients in flight of an optimizer with `exchange` next to the model, and resume from them.

    Use it on all ranks, together with keras.callbacks.ModelCheckpoint or BestModelCheckpoint. After every epoch the
    first rank writes the file `filepath` + ".in_flight.npz". With partial exchanges, and with codecs with error
    feedback, ranks have different states: each rank writes `filepath` + ".in_flight.<rank>.npz". The files hold plain
    arrays (numpy.load).

    Args:
        filepath: path of the model's checkpoint, with the same fields in braces ("{epoch:02d}").
        resume: path of a saved model that is loaded already, or whose weights are. Training begins with the gradients
            that were in flight when it was saved. Where each rank has its own file, the number of ranks must not
            change.

    Raises:
        UserError: the optimizer is not one of hvd.DistributedOptimizer, or the file belongs to another exchange. If one
            rank cannot read its file, all ranks raise.
    """

    def __init__(self, filepath: str | os.PathLike[str], resume: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self._filepath = os.fspath(filepath)
        self._resume = resume

    def on_train_begin(self, logs: Any = None) -> None:
        """Load the gradients in flight, on the first call only."""
        optimizer = self._optimizer()
        if self._resume is None:
            return
        path, self._resume = self._beside(os.fspath(self._resume)), None
        found, problem = None, ""
        if self._writes():
            try:
                found = load_in_flight(path)
            except (UserError, FileNotFoundError) as error:
                problem = (
                    f"Rank {horovod_module.rank()} cannot go on with the gradients in flight that were expected in "
                    f"{path}: {error}"
                )
        for one in wire.gather_object(problem, "InFlightCheckpoint.problems"):
            if one:
                raise UserError(
                    one, "Give resume= the path of a model that InFlightCheckpoint was beside, or leave it out."
                )
        if not self._each_its_own():
            found = wire.broadcast_object(found, self._first(), "InFlightCheckpoint.state")
        build_optimizer(self.model, self.model.optimizer)
        optimizer.load_in_flight(found)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save the gradients in flight, between two barriers of all ranks."""
        wire.gather_object(None, "InFlightCheckpoint.before")
        if self._writes():
            path = self._beside(self._filepath.format(epoch=epoch + 1, **(logs or {})))
            save_in_flight(path, self._optimizer().in_flight())
        wire.gather_object(None, "InFlightCheckpoint.after")

    def _optimizer(self) -> Any:
        optimizer = find(self.model.optimizer)
        if optimizer is None:
            raise UserError(
                f"Rank {horovod_module.rank()}: InFlightCheckpoint expected an optimizer of hvd.DistributedOptimizer, "
                f"found {type(self.model.optimizer).__name__}.",
                "Compile the model with hvd.DistributedOptimizer(...), or leave the callback out.",
            )
        return optimizer

    def _each_its_own(self) -> bool:
        distributed = self._optimizer()._distributed
        exchange, encoding = distributed.exchange, distributed.settings.encoding
        fed_back = encoding is not None and encoding.choice.error_feedback
        return fed_back or (exchange is not None and bool(exchange.settings.states_differ))

    def _first(self) -> int:
        ranks = self._optimizer()._distributed.settings.process_set.ranks
        return min(ranks) if ranks else 0

    def _writes(self) -> bool:
        return self._each_its_own() or horovod_module.rank() == self._first()

    def _beside(self, path: str) -> Path:
        own = f".{horovod_module.rank()}" if self._each_its_own() else ""
        return Path(f"{path}.in_flight{own}.npz")
