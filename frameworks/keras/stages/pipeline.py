"""hvd.Pipeline of Keras."""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from paceline.errors import UsageError
from paceline.keras.backend import horovod_module, keras, wire
from paceline.keras.stages import optimizer as optimizers
from paceline.keras.stages import state as states
from paceline.keras.stages.assembly import Assembly
from paceline.keras.stages.batches import Batches, inputs, rows_of, tensors_of
from paceline.keras.stages.fit import Fit, Losses
from paceline.keras.stages.layers import Layer, free, layers_of, refuse_unfit
from paceline.keras.stages.losses import loss_of
from paceline.keras.stages.observed import Scores, StageModel
from paceline.keras.stages.stage import Stage
from paceline.pipeline_options import warn_without_effect
from paceline.stages.delays import delays
from paceline.stages.execution import posting
from paceline.stages.execution.cut import AUTO, first_layers
from paceline.stages.execution.evaluation import metrics_of_last_stages
from paceline.stages.execution.pipeline import StagedTraining
from paceline.stages.execution.settings import Settings
from paceline.stages.execution.sharing import refuse_shared


class Pipeline(StagedTraining):
    """Trains a Keras model that is cut into stages, one per rank; several micro-batches are in flight at a time.

        keras.utils.set_random_seed(1)  # the same weights on all ranks
        model = keras.Sequential([keras.Input((64,)), ...])
        pipeline = hvd.Pipeline(model, optimizer=keras.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy",
                                n_microbatches=4, schedule="pipemare", metrics=["accuracy"])
        history = pipeline.fit(x, y, batch_size=32, epochs=3, validation_data=(test_x, test_y))
        whole = pipeline.consolidate()

    Schedules, their cost and when to use which: docs/methods/stages.md.

    - `model`: a built keras.Sequential, or a functional model that is a chain of layers. Each rank keeps the layers of
      its own stage, with the weights they were built with (seed all ranks alike), and frees the memory of the others.
    - `optimizer`: an unused Keras optimizer, its name, or a function that returns one; each stage has its own,
      `pipeline.optimizer`.
    - `loss`: a Keras loss, its name, or a function of targets and outputs.
    - `metrics`: Keras metrics, as for compile(); fit() and evaluate() report them on all ranks.
    - `max_norm`: clip gradients by the norm over all stages. It replaces the optimizer's global_clipnorm.

    All other arguments are those of paceline.torch.Pipeline. Layers pass on a tensor, or a tuple or list of tensors.
    All ranks raise UsageError (a ValueError) for models that cannot be cut, meaningless settings, and settings that
    differ between ranks. If one stage raises, all others raise StageFailed with its traceback.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loss: Any,
        n_microbatches: int,
        schedule: str = "1f1b",
        stages: str | Sequence[int | str] = AUTO,
        *,
        metrics: Any = None,
        costs: Sequence[float] | None = None,
        max_norm: float | None = None,
        recompute: bool = False,
        warmup_steps: int = 0,
        annealing_steps: int = 0,
        correction: float | None = None,
        process_set: Any = horovod_module.global_process_set,
        communicator: posting.Communicator | None = None,
    ) -> None:
        super().__init__(wire.LIBRARY, process_set, communicator)
        layers: list[Layer] = []
        firsts: list[int] = []
        chosen: list[Any] = []

        def asked() -> dict[str, Any]:
            computed, reduction = loss_of(loss)
            chosen.extend([computed, optimizers.found_in(optimizer)])
            late = warmup_steps, annealing_steps, correction
            self._settings = Settings(schedule, n_microbatches, stages, costs, *late, max_norm, reduction, recompute)
            layers.extend(layers_of(model))
            refuse_unfit(layers)
            firsts.extend(first_layers(layers, self.stages, stages, costs))
            refuse_shared("variable", (layer.named() for layer in layers), firsts)
            return {**self._settings.terms(), **_described(layers, firsts)}

        self._meet(asked)
        self._cut = [layers[first].name for first in firsts]
        bounds = [*firsts, len(layers)]
        counts = [len(Stage(layers[begin:end], True).trainable) for begin, end in itertools.pairwise(bounds)]
        own = range(bounds[self.stage], bounds[self.stage + 1])
        self._stage = Stage([layers[number] for number in own], self.stage == self.stages - 1)
        free([layer for number, layer in enumerate(layers) if number not in own])
        with self._guard():
            computed, made = chosen
            made.build(self._stage.trainable)
            measured = metrics if self.stage == self.stages - 1 else None
            self.model = StageModel(self._stage, made, measured)
            self._scores = Scores(self.model, measured)
            on: Any
            if keras.backend.backend() == "tensorflow":
                from paceline.keras.stages import on_tensorflow as on
            else:
                from paceline.keras.stages import on_torch as on
            tensors = on.tensors_of(self._stage)
            taus = delays(self._settings.schedule_of(self.stages))[self.stage]
            by = Assembly(self._post, self._settings, self._stage, made, computed, tensors, counts, taus, self._scores)
            self._equip(tensors, on.assembled(by))
        if self._communicator.rank == 0:
            warn_without_effect()

    @property
    def names(self) -> list[str]:
        """Names of this stage's trained weights in the whole model: the layer's number, and its own name."""
        return list(self._stage.names)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int = 32,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_data: Any = None,
        shuffle: bool = True,
        initial_epoch: int = 0,
        seed: int = 0,
    ) -> Any:
        """Train as Keras does, on all ranks. Returns the History, the same on all ranks.

        - `x`, `y`: arrays or tensors, the same on all ranks; or `x` is an iterable of (batch, target) pairs that can be
          iterated again, such as a tf.data.Dataset, with equally many pairs on all ranks. A smaller last batch is used
          too.
        - `shuffle`, `seed`: permute the rows of arrays in each epoch, in the same way on all ranks.
        - `callbacks`: on all ranks; their model is this stage (`pipeline.model`). If one stops training, all ranks stop
          at the end of the epoch. Batch logs hold the mean of the losses known so far, epoch logs the loss and metrics,
          equal on all ranks.
        - `validation_data`: (x, y), or an iterable of pairs.

        Each epoch ends with a drain. Raises UsageError for batches with fewer rows than n_microbatches, for callbacks
        that save models, and if arguments differ between ranks.
        """
        batches = Batches(x, y, batch_size, "The data")
        least, needed = batches.least(), self.microbatches
        if least is not None and least < needed:
            raise UsageError(
                f"Batches of {batch_size} of {batches.rows} rows: the last has {least}, expected {needed} "
                "(n_microbatches) at least.",
                "Leave some rows out, or choose another batch_size.",
            )
        validation = None
        if validation_data is not None:
            pair = isinstance(validation_data, (tuple, list)) and len(validation_data) == 2
            validation_x, validation_y = validation_data if pair else (validation_data, None)
            validation = Batches(validation_x, validation_y, batch_size, "validation_data")
        chosen = range(initial_epoch, epochs)
        made = Fit(self, batches, validation, chosen, callbacks, verbose, shuffle, seed)
        with self._guard():
            return made.run()

    def evaluate(self, x: Any = None, y: Any = None, batch_size: int = 32) -> dict[str, float]:
        """Return the loss and metrics at the newest weights. Call it on all ranks with the same data.

        The data may have any number of rows. Arguments are those of fit(). Raises UsageError while micro-batches are in
        flight: call drain() first.
        """
        self._refuse_under_way("evaluated")
        return self._evaluated(Batches(x, y, batch_size, "The data"))

    def predict(self, x: Any = None, batch_size: int = 32) -> Any:
        """Return the model's outputs at the newest weights as NumPy arrays. Call it on all ranks with the same data.

        `x`: arrays or tensors of any number of rows; or an iterable of batches, or of (batch, target) pairs. Raises
        UsageError while micro-batches are in flight: call drain() first.
        """
        found = [keras.tree.map_structure(_array, super(Pipeline, self).predict(one)) for one in inputs(x, batch_size)]
        return keras.tree.map_structure(lambda *parts: np.concatenate(parts), *found)

    def state_dict(self) -> dict[str, Any]:
        """State of this stage under "model", "optimizer" and "pipeline".

        Holds NumPy arrays by their names in the whole model. Raises UsageError while micro-batches are in flight: call
        drain() on all ranks first.
        """
        self._refuse_under_way("saved")
        stage = self._stage
        deltas = [] if self._correction is None else self._correction.deltas
        random = {name: one for name, one in stage.variables.items() if name not in stage.weights}
        return {
            "model": stage.values_of(stage.weights),
            "optimizer": optimizers.state_of(self.optimizer, stage.names),
            "pipeline": {
                "steps": self._age,
                "asynchronous": self._updates.asynchronous,
                "deltas": {
                    name: keras.ops.convert_to_numpy(one) for name, one in zip(stage.names, deltas, strict=False)
                },
                "random": stage.values_of(random),
            },
        }

    def consolidate(self) -> dict[str, Any] | None:
        """Return the state of all stages on rank 0, None on the others. Call it on all ranks.

        `plain.set_weights(list(state["model"].values()))` loads the weights into an ordinary model. A pipeline with any
        number of stages can continue from the state. Raises UsageError as state_dict does.
        """
        with self._guard():
            return states.consolidated(self._post, self.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `consolidate` on all ranks, or from this stage's own state of the same cut.

        A plain {"model": ...} is enough: everything else stays as it is. Raises UsageError while micro-batches are in
        flight, and for states that lack a variable of this stage or have it in another shape. Nothing has changed then.
        """
        self._refuse_under_way("loaded")
        saved = states.complete(state)
        self._stage.check(saved["model"])  # all before anything changes
        if saved["optimizer"] is not None:
            optimizers.check(self.optimizer, self._stage.names, saved["optimizer"])
            optimizers.load(self.optimizer, self._stage.names, saved["optimizer"])
        self._stage.load({**saved["pipeline"]["random"], **saved["model"]})
        self._age = saved["pipeline"]["steps"]
        self._updates.asynchronous = saved["pipeline"]["asynchronous"]
        if self._correction is not None:
            deltas = [saved["pipeline"]["deltas"].get(name) for name in self._stage.names]
            self._correction.load([None if one is None else keras.ops.convert_to_tensor(one) for one in deltas])
        self._begin()

    def _finalize(self) -> None:
        """Overwrite the weights with the optimizer's moving average (use_ema), as Keras does at the end of fit()."""
        if self._stage.trainable:
            self.optimizer.finalize_variable_values(self._stage.trainable)
            self._begin()

    def _evaluated(self, batches: Batches) -> dict[str, float]:
        losses = Losses()
        self._scores.reset()
        with self._scores.watching():
            for batch, target in batches(None):
                losses.began(rows_of(batch, target))
                losses.found(super().evaluate(batch, target))
        with self._guard():
            logs = {"loss": losses.mean, **self._scores.result()}
            return metrics_of_last_stages(self._post, self._grid, logs)

    def _newly_known(self) -> bool:
        """True if the last step returned a loss for the first time."""
        return self._steps == 1 or self._steps > 1 + self._schedule.loss_lag

    def _taken(self, value: Any, whose: str, stage: int, least: int) -> Any:
        return super()._taken(tensors_of(value) if stage == self.stage else None, whose, stage, least)

    def _loss(self, value: float) -> float:
        return value

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        self._stage.evaluating = True
        try:
            yield
        finally:
            self._stage.evaluating = False


def _array(tensor: Any) -> np.ndarray[Any, Any]:
    return np.array(keras.ops.convert_to_numpy(tensor))


def _described(layers: Sequence[Layer], firsts: Sequence[int]) -> dict[str, Any]:
    """Properties of the layers that must agree between stages; values of weights need not."""
    variables = [(name, tuple(one.shape), str(one.dtype)) for layer in layers for name, one in layer.named()]
    return {
        "the cut": list(firsts),
        "the number of layers": len(layers),
        "the number of variables": len(variables),
        "the digest of variables' names, shapes and types": zlib.crc32(repr(variables).encode()),
    }
