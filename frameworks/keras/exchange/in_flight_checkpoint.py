"""What an exchange has in flight, saved beside the model by Keras' fit()."""

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
    """Saves, beside the model, what an optimizer with `exchange` has in flight, and lets a run go on with it.

    Beside keras.callbacks.ModelCheckpoint or BestModelCheckpoint, on all ranks. `filepath`: the model's, with the same
    fields in braces ("{epoch:02d}"); after every epoch a file of this name with ".in_flight.npz" behind it is written
    by the first rank; of partial exchanges and codecs with error feedback, where every rank has its own,
    ".in_flight.<rank>.npz" by each. They hold plain arrays (numpy.load). `resume`: the path of a saved model, loaded or
    with its weights loaded by now; training begins with what was in flight when it was saved, which takes as many ranks
    as there were where each has its own.

    Raises UserError for an optimizer that is not ours, for a file of another exchange, and on all ranks if the file of
    one cannot be read.
    """

    def __init__(self, filepath: str | os.PathLike[str], resume: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self._filepath = os.fspath(filepath)
        self._resume = resume

    def on_train_begin(self, logs: Any = None) -> None:
        """Take up what was in flight, once."""
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
        """Save what is in flight, between two moments at which all ranks are here."""
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
        exchange, travel = distributed.exchange, distributed.settings.travel
        fed_back = travel is not None and travel.choice.error_feedback
        return fed_back or (exchange is not None and bool(exchange.settings.states_differ))

    def _first(self) -> int:
        ranks = self._optimizer()._distributed.settings.process_set.ranks
        return min(ranks) if ranks else 0

    def _writes(self) -> bool:
        return self._each_its_own() or horovod_module.rank() == self._first()

    def _beside(self, path: str) -> Path:
        own = f".{horovod_module.rank()}" if self._each_its_own() else ""
        return Path(f"{path}.in_flight{own}.npz")
