"""Steps without new data in Model.fit: a rank repeats its last batch until no rank has data.

Such a step counts no samples. Metrics, moving averages and other variables without gradients stay unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import keras
from keras.src.trainers.data_adapters.data_adapter import DataAdapter


class Marked(NamedTuple):
    """A batch for Keras. `own`: False if it repeats the last one, else True; or a scalar tensor of either."""

    batch: Any
    own: Any


class PaddedAdapter(DataAdapter):
    """Data of another adapter of Keras with more batches, all of them Marked."""

    def __init__(self, held: Any, batches: int) -> None:
        self._held = held
        self._batches = batches

    @property
    def num_batches(self) -> int:
        """Number of batches of an epoch."""
        return self._batches

    def get_tf_dataset(self) -> Any:
        """Return a tf.data.Dataset of one epoch."""
        from paceline.keras3.tensorflow_padding import padded

        return padded(self._held.get_tf_dataset(), self._batches, Marked)

    def get_torch_dataloader(self) -> Iterable[Marked]:
        """Return an iterable of one epoch."""
        return self._padded(self._held.get_torch_dataloader())

    def _padded(self, batches: Iterable[Any]) -> Iterator[Marked]:
        last, count = None, 0
        for last in batches:
            count += 1
            yield Marked(last, True)
        for _ in range(count, self._batches):
            yield Marked(last, False)

    def on_epoch_begin(self) -> None:
        """Forward the hook."""
        self._held.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Forward the hook."""
        self._held.on_epoch_end()


def unmarked(epoch: Any) -> Any:
    """Return the steps of Keras' iterator over an epoch, with the batches of the original adapter."""
    if not isinstance(getattr(epoch, "data_adapter", None), PaddedAdapter):
        return epoch
    return _unmarked(epoch)


def _unmarked(epoch: Iterable[Any]) -> Iterator[Any]:
    for begin, end, found in epoch:
        marked = found[0] if isinstance(found, (list, tuple)) else next(found)
        yield begin, end, [marked.batch]


def take_marked(model: Any, find: Callable[[Any], Any]) -> None:
    """Make the train_step of `model`, its own or Keras', accept Marked batches in addition to others.

    `find`: from paceline.keras3.patches.
    """
    step = model.train_step
    if isinstance(step, functools.partial) and step.func is _step:
        return
    # Bypass Keras' __setattr__, which tracks layers and variables.
    object.__setattr__(model, "train_step", functools.partial(_step, model, find, step))
    model.train_function = None  # it holds the old step


def _step(model: Any, find: Callable[[Any], Any], original: Callable[[Any], Any], data: Any) -> Any:
    if not isinstance(data, Marked):
        return original(data)
    if data.own is True:
        return original(data.batch)
    model._symbolic_build(data_batch=data.batch)  # variables created in the step would have no value to keep
    variables = {id(one): one for one in (*model.metrics_variables, *model.non_trainable_variables)}
    before = {key: keras.ops.copy(one.value) for key, one in variables.items()}
    state = find(model.optimizer)._distributed
    state.own_batch = data.own
    try:
        logs = original(data.batch)
    finally:
        state.own_batch = None
    for key, one in variables.items():
        one.assign(before[key] if data.own is False else keras.ops.where(data.own, one.value, before[key]))
    metrics = model.get_metrics_result()
    # The model's train_step may return other values.
    return metrics if isinstance(logs, dict) and logs.keys() == metrics.keys() else logs
