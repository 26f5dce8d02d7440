"""Horovod's callbacks for Keras 3, on both backends. Arguments and meaning are Horovod's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from paceline.errors import UsageError
from paceline.keras3.optimizer import find
from paceline.keras3.sharded import Sharded
from paceline.keras3.state import broadcast_state, build_optimizer, shared_variables
from paceline.keras3.update import communication
from paceline.keras3.weighing import SAMPLES
from paceline.log import log


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Broadcast the root's weights and optimizer state when training starts.

    A model that is built by its first batch is broadcast after that batch.

    Args:
        root_rank: rank whose values all ranks get.
        device: accepted and ignored.
        local_variables: variables that keep each rank's own values.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False
        self._local: dict[int, Any] = {}
        if local_variables is None:
            local_variables = []
        for variable in local_variables if isinstance(local_variables, (list, tuple, set)) else [local_variables]:
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Exclude `var` from the broadcast."""
        native = communication().native(var)
        self._local[id(native)] = native

    def _broadcast(self) -> None:
        variables = shared_variables(self.model, local=self._local)
        broadcast_state(variables, self.root_rank, "BroadcastGlobalVariablesCallback")
        wrapped = find(getattr(self.model, "optimizer", None))
        if isinstance(wrapped, Sharded):
            wrapped.take_state(self.root_rank)
        self.broadcast_done = True

    def _report_unwrapped(self) -> None:
        # A model with its own step may reduce gradients itself.
        optimizer, wire = getattr(self.model, "optimizer", None), communication()
        own_step = type(self.model).train_step is not keras.Model.train_step
        unwrapped = isinstance(optimizer, keras.optimizers.Optimizer) and find(optimizer) is None
        if unwrapped and not own_step and wire.hvd.size() > 1:
            log(
                f"rank {wire.hvd.rank()}: expected a wrapped optimizer in a model that all ranks train, found "
                f"{getattr(optimizer, 'name', '')!r}, whose gradients stay on their rank. Models of ranks will differ: "
                "give compile() the result of hvd.DistributedOptimizer(optimizer)."
            )

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcast a built model, and warn about an unwrapped optimizer."""
        self._report_unwrapped()
        if not self.broadcast_done and self.model.built:
            build_optimizer(self.model, getattr(self.model, "optimizer", None))
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcast after the first batch if the model was not built before."""
        if not self.broadcast_done:
            self._broadcast()


class MetricAverageCallback(keras.callbacks.Callback):
    """Average all metrics over the ranks at the end of an epoch.

    Place it before callbacks that read metrics (ReduceLROnPlateau, EarlyStopping, TensorBoard).

    Args:
        device: accepted and ignored.
        weight: None, or "samples": weight training metrics by the number of samples that the rank trained on in the
            epoch, and validation metrics ("val_...") by the number that it evaluated.

    Raises:
        UsageError: another weight; or, on all ranks, no rank has counted samples.
    """

    def __init__(self, device: str = "", weight: str | None = None) -> None:
        super().__init__()
        if weight not in (None, SAMPLES):
            raise UsageError(f"MetricAverageCallback(weight={weight!r}) cannot be used.", f"Use None or {SAMPLES!r}.")
        self._weight = weight
        self._trained: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Reset the count of training samples."""
        self._trained = None

    def on_test_begin(self, logs: Any = None) -> None:
        """Read the count of training samples, which Keras resets after it."""
        if self._trained is None:
            self._trained = self._seen()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Replace the logs by their averages."""
        if not logs:
            return
        weights = None
        if self._weight is not None:
            seen = self._seen()
            trained = seen if self._trained is None else self._trained
            weights = {metric: seen if metric.startswith("val_") else trained for metric in logs}
        logs.update(average_metrics(logs, "MetricAverageCallback", weights))

    def _seen(self) -> float:
        """Number of samples in the loss of the last pass over data."""
        return float(keras.ops.convert_to_numpy(self.model._loss_tracker.count))


def average_metrics(logs: dict[str, Any], name: str, weights: dict[str, float] | None = None) -> dict[str, Any]:
    """Average `logs` over the ranks in one message, by `weights` if given. Every rank must have the same metrics.

    Metrics of a rank with weight 0 are ignored. Raises UsageError, on all ranks, if all weights are 0.
    """
    arrays = {metric: np.asarray(logs[metric], dtype=np.float64) for metric in sorted(logs)}
    flat = np.concatenate([array.ravel() for array in arrays.values()])
    by = None if weights is None else np.concatenate([np.full(one.size, weights[key]) for key, one in arrays.items()])
    if by is not None:
        flat = np.concatenate([np.where(by > 0, flat, 0.0) * by, by])
    # The name contains the metrics: ranks with different ones are reported as stalled, not mixed up.
    reduced = communication().average(flat, "_".join([name, *arrays]).replace("/", "_"))
    if by is not None:
        reduced, total = reduced[: by.size], reduced[by.size :]
        if not total.all():
            raise UsageError(
                f'{name}(weight="samples") found no samples on any rank: Keras counts them with the metric "loss" of '
                "the model, which its train_step or test_step does not update.",
                "Update it there (Keras' guide on custom train_step shows how), or leave weight= out.",
            )
        reduced = reduced / total
    result: dict[str, Any] = {}
    start = 0
    for metric, array in arrays.items():
        part = reduced[start : start + array.size].reshape(array.shape)
        result[metric] = float(part) if part.ndim == 0 else part
        start += array.size
    return result


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Set the learning rate to `initial_lr * multiplier` between two epochs.

    Args:
        initial_lr: learning rate at the start of training.
        multiplier: a number, for `multiplier ** (epoch - start_epoch)`, or a function of the epoch.
        start_epoch: first epoch that is adjusted.
        end_epoch: first epoch that is no longer adjusted; None: no end.
        staircase: adjust at the start of an epoch (whole epochs) or of every batch (fractions).
        momentum_correction: scale the velocity of SGD and RMSprop by the change of the rate, as in Goyal et al., arXiv
            1706.02677, section 2.1: in Keras the velocity includes the rate.
        steps_per_epoch: for staircase=False, where Keras does not know the number.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("Parameter `initial_lr` is required")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self.multiplier: Callable[[float], float]
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            base = float(multiplier)
            self.multiplier = lambda epoch: base ** (epoch - start_epoch)

    def _rate(self) -> float:
        return float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old, new = self._rate(), self.initial_lr * self.multiplier(epoch)
        try:
            optimizer.learning_rate = new
        except TypeError:
            raise UsageError(
                f"{type(self).__name__} cannot set the learning rate of {optimizer.name!r}: its optimizer has a "
                "LearningRateSchedule.",
                "Make the optimizer with a number as learning_rate, or leave the callback out.",
            ) from None
        if self.momentum_correction and old > 0 and new != old:
            for velocity in _velocities(optimizer):
                velocity.assign(velocity * keras.ops.cast(new / old, velocity.dtype))

    def on_train_begin(self, logs: Any = None) -> None:
        """Find the number of steps of an epoch."""
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise UsageError(
                    f"{type(self).__name__} does not know how many steps an epoch has.",
                    "Give steps_per_epoch= to the callback.",
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Remember the epoch."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Adjust the learning rate."""
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._adjust(epoch + batch / (self.steps_per_epoch or 1))
        elif batch == 0:
            self._adjust(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Add the learning rate to the logs."""
        if logs is not None:
            logs["lr"] = self._rate()


def _velocities(optimizer: Any) -> list[Any]:
    """Momentum variables of optimizers whose velocity includes the learning rate."""
    while hasattr(optimizer, "inner_optimizer"):
        optimizer = optimizer.inner_optimizer
    if not optimizer.built or not getattr(optimizer, "momentum", 0):
        return []
    if isinstance(optimizer, keras.optimizers.SGD):
        return [variable for variable in optimizer.momentums if variable is not None]
    if isinstance(optimizer, keras.optimizers.RMSprop):
        return [variable for variable in optimizer._momentums if variable is not None]
    return []


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raise the learning rate from `initial_lr / size()` to `initial_lr` over the first epochs.

    As in Goyal et al., arXiv 1706.02677, section 2.2, for `initial_lr` scaled by the number of ranks.
    `verbose`: 1 prints a line on rank 0 when the warm-up is over.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            size = communication().hvd.size()
            # One batch ahead, so that the last batch of an epoch has a round number.
            ahead = epoch + 1.0 / (self.steps_per_epoch or 1)
            return float(1.0 / size * (ahead * (size - 1) / warmup_epochs + 1))

        super().__init__(
            initial_lr,
            multiplier,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Add the learning rate to the logs, and report the end of the warm-up."""
        super().on_epoch_end(epoch, logs)
        done = self.end_epoch is not None and epoch == self.end_epoch - 1
        if done and self.verbose and communication().hvd.rank() == 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._rate():g}.")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Save the model on rank 0 when the monitored metric, averaged over the ranks, is the best so far.

    Arguments are those of keras.callbacks.ModelCheckpoint. `filepath` may also be set as an attribute before training.
    With save_freq other than "epoch" only rank 0's own metric counts: ranks may have different numbers of batches.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        filepath: Any = None,
        initial_value_threshold: float | None = None,
    ) -> None:
        named = filepath is not None
        ending = ".weights.h5" if save_weights_only else ".keras"
        super().__init__(
            filepath=filepath if named else f"unnamed{ending}",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
            initial_value_threshold=initial_value_threshold,
        )
        if not named:
            self.filepath = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Check that a file path is set."""
        if self.filepath is None:
            raise UsageError("BestModelCheckpoint does not know where to save.", "Give filepath= to the callback.")
        super().on_train_begin(logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save on rank 0, if `save_freq` counts batches."""
        if communication().hvd.rank() == 0:
            super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Average the monitored metric; save on rank 0."""
        logs = dict(logs or {})
        if self.save_freq == "epoch" and self.monitor in logs:
            monitored = {self.monitor: logs[self.monitor]}
            logs.update(average_metrics(monitored, "BestModelCheckpoint"))
        wrapped = find(getattr(self.model, "optimizer", None))
        if self.save_freq == "epoch" and isinstance(wrapped, Sharded):
            wrapped.consolidate_state_dict()
        if communication().hvd.rank() == 0:
            super().on_epoch_end(epoch, logs)


CALLBACKS: Sequence[type[Any]] = (
    BroadcastGlobalVariablesCallback,
    MetricAverageCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    BestModelCheckpoint,
)
