"""fit() of a pipeline: epochs, callbacks, metrics, validation."""

from __future__ import annotations

from typing import Any

import numpy as np

from paceline.errors import UsageError
from paceline.keras.backend import keras
from paceline.keras.stages.batches import Batches, rows_of
from paceline.stages.execution.evaluation import metrics_of_last_stages
from paceline.stages.execution.terms import gathered, meet

# They would save one stage as if it were the model, and all stages to one file.
_SAVERS = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)


class Losses:
    """Mean loss of an epoch. Losses of mini-batches become known some steps later."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._found: list[float] = []

    def began(self, rows: int) -> None:
        """Count a mini-batch with this number of rows."""
        self._rows.append(rows)

    def found(self, loss: float) -> None:
        """Add the next loss."""
        self._found.append(loss)

    @property
    def mean(self) -> float:
        """Mean of the known losses, weighted by rows."""
        rows = self._rows[: len(self._found)]
        return float(np.average(self._found, weights=rows)) if self._found else float("nan")


class Fit:
    """One call of fit(). Raises UsageError, on all ranks, if their arguments differ."""

    def __init__(
        self,
        pipeline: Any,
        batches: Batches,
        validation: Batches | None,
        epochs: range,
        callbacks: Any,
        verbose: Any,
        shuffle: bool,
        seed: int,
    ) -> None:
        self._pipeline, self._batches, self._validation = pipeline, batches, validation
        self._epochs, self._shuffle, self._seed = epochs, shuffle and batches.arrays, seed
        meet(pipeline._post, self._terms())
        for one in callbacks or ():
            if isinstance(one, _SAVERS) and pipeline.stages > 1:
                raise UsageError(
                    f"{type(one).__name__} would save one stage as if it were the model.",
                    "Save pipeline.consolidate() on rank 0, such as in a callback of your own.",
                )
        verbose = (1 if verbose == "auto" else verbose) if pipeline.stage == 0 else 0
        self._callbacks = keras.callbacks.CallbackList(
            callbacks,
            add_history=True,
            add_progbar=verbose != 0,
            verbose=verbose,
            epochs=epochs.stop,
            steps=batches.steps,
            model=pipeline.model,
        )

    def run(self) -> Any:
        """Run all epochs; return the History."""
        model = self._pipeline.model
        model.stop_training = False
        self._callbacks.on_train_begin()
        logs: dict[str, float] = {}
        for epoch in self._epochs:
            self._callbacks.on_epoch_begin(epoch)
            logs = self._epoch(epoch)
            if self._validation is not None:
                found = self._pipeline._evaluated(self._validation)
                logs.update({f"val_{name}": value for name, value in found.items()})
            self._callbacks.on_epoch_end(epoch, logs)
            # If a callback stops one rank, all must stop: the others would wait for it.
            if "1" in gathered(self._pipeline._post, str(int(bool(model.stop_training)))):
                model.stop_training = True
                break
        if self._epochs:
            self._pipeline._finalize()
        self._callbacks.on_train_end(logs)
        return model.history

    def _epoch(self, epoch: int) -> dict[str, float]:
        pipeline = self._pipeline
        order = None
        if self._shuffle and self._batches.rows is not None:
            order = np.random.default_rng([self._seed, epoch]).permutation(self._batches.rows)
        losses = Losses()
        pipeline._scores.reset()
        with pipeline._scores.watching():
            for number, (batch, target) in enumerate(self._batches(order)):
                self._callbacks.on_train_batch_begin(number)
                losses.began(rows_of(batch, target))
                loss = pipeline.step(batch, target)
                if pipeline._newly_known():
                    losses.found(loss)
                self._callbacks.on_train_batch_end(number, {"loss": losses.mean})
            for loss in pipeline.drain():
                losses.found(loss)
        logs = {"loss": losses.mean, **pipeline._scores.result()}
        return metrics_of_last_stages(pipeline._post, pipeline._grid, logs)

    def _terms(self) -> dict[str, Any]:
        found: dict[str, Any] = {"epochs": [self._epochs.start, self._epochs.stop]}
        for name, one in (("x", self._batches), ("validation_data", self._validation)):
            found[f"rows of {name}"] = None if one is None else one.rows
            found[f"batches of {name}"] = None if one is None else one.steps
        found.update(shuffle=self._shuffle, seed=self._seed)
        return found
