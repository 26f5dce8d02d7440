"""Data for Model.fit with different numbers of batches on the ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras.src.trainers import data_adapters

from paceline.errors import UsageError
from paceline.keras3.padding import PaddedAdapter, take_marked
from paceline.keras3.same_gradients import FIRST_LIMIT_S
from paceline.keras3.update import communication
from paceline.native.agreement import everyone
from paceline.native.library import loaded

_LABEL = "hvd.uneven()"
_TOGETHER = "Call hvd.uneven() on all ranks."
_KINDS = "a tf.data.Dataset, a keras.utils.PyDataset or a torch DataLoader"


class UnevenData:
    """Data of this rank for Model.fit. Its length is the number of steps of an epoch, on all ranks."""

    def __init__(self, data: Any, steps: int) -> None:
        self.data = data
        self._steps = steps

    def __len__(self) -> int:
        return self._steps

    def __repr__(self) -> str:
        return f"<uneven data: {_batches_of(self.data)} batches in {self._steps} steps>"

    def fit_arguments(self, model: Any, find: Callable[[Any], Any], given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of Model.fit that replace `given`, whose x this is.

        Raises UsageError for a model whose updates cannot be made without data.
        """
        _check(model, find)
        if _batches_of(self.data) == self._steps:
            return {**given, "x": self.data}
        # Keras warns about shuffle=True, which is its default, with other data.
        shuffle = given.get("shuffle", True) and isinstance(self.data, keras.utils.PyDataset)
        others = {name: given.get(name) for name in ("y", "sample_weight", "steps_per_epoch", "class_weight")}
        adapter = data_adapters.get_data_adapter(self.data, shuffle=shuffle, **others)
        take_marked(model, find)
        return {**given, "x": PaddedAdapter(adapter, self._steps), "class_weight": None}


def uneven(data: Any) -> UnevenData:
    """Return `data` for Model.fit, with possibly different numbers of batches on the ranks.

        data = hvd.uneven(dataset)
        model.compile(hvd.DistributedOptimizer(optimizer, weight="samples"), "mse")
        model.fit(data, epochs=10)

    An epoch has as many steps as the largest number of batches of a rank. A rank without further data takes part with
    weight 0: each update is the mean over the samples of the ranks that have data. Metrics, and variables without
    gradients such as the moving averages of BatchNormalization, only count the rank's own batches.

    Args:
        data: a tf.data.Dataset, a keras.utils.PyDataset or a torch DataLoader with at least one batch. Its number of
            batches must be known and the same in all epochs. All ranks must make the call.

    Raises:
        UsageError: on all ranks, if the data of one cannot be used.
    """
    problem, remedy, count = _found(data)
    wire = communication()
    rank = wire.hvd.rank()
    counts = [number - 1 for (number,) in everyone(loaded(wire.LIBRARY), _LABEL, [count + 1], _TOGETHER, FIRST_LIMIT_S)]
    if problem:
        raise UsageError(f"Rank {rank}: {_LABEL} {problem}", remedy)
    unusable = [number for number, found in enumerate(counts) if found < 0]
    if unusable:
        raise UsageError(f"{_LABEL} cannot use the data of rank {unusable[0]}, which reports why.", "Change it there.")
    if 0 in counts:
        raise UsageError(
            f"{_LABEL} expected one batch or more on each rank, found none on rank {counts.index(0)} and up to "
            f"{max(counts)} on others.",
            "Divide the samples so that each rank has some: dataset.shard(hvd.size(), hvd.rank()) before batch(), "
            "without drop_remainder.",
        )
    return UnevenData(data, max(counts))


def _found(data: Any) -> tuple[str, str, int]:
    """Return a problem, its remedy and -1; or "", "" and the number of batches."""
    usable = (
        isinstance(data, keras.utils.PyDataset)
        or data_adapters.is_tf_dataset(data)
        or data_adapters.is_torch_dataloader(data)
    )
    if not usable:
        return f"expected {_KINDS}, found {type(data).__name__}.", "Convert the data to one of these.", -1
    count = _batches_of(data)
    if count is not None:
        return "", "", count
    if data_adapters.is_tf_dataset(data):
        remedy = "Give dataset.apply(tf.data.experimental.assert_cardinality(number of batches)); leave repeat() out."
    else:
        remedy = "Give a PyDataset with num_batches, or a DataLoader of a data set that has a length."
    return f"expected data with a known number of batches, found {type(data).__name__} without.", remedy, -1


def _batches_of(data: Any) -> int | None:
    """Return the number of batches of an epoch, as Keras knows it; None if it is not known."""
    count: int | None = data_adapters.get_data_adapter(data).num_batches
    return count


def _check(model: Any, find: Callable[[Any], Any]) -> None:
    optimizer = find(getattr(model, "optimizer", None))
    if optimizer is None:
        raise UsageError(
            f"Model.fit was given the result of {_LABEL}: expected a wrapped optimizer, found "
            f"{type(getattr(model, 'optimizer', None)).__name__}.",
            'Give compile() the result of hvd.DistributedOptimizer(optimizer, weight="samples").',
        )
    if optimizer.weight is None:
        raise UsageError(
            f"Model.fit was given the result of {_LABEL}: expected an optimizer with a weight, found "
            f"{optimizer.name!r} without.",
            'Use hvd.DistributedOptimizer(optimizer, weight="samples"), or set optimizer.weight.',
        )
    if keras.backend.backend() == "tensorflow":
        from paceline.keras3.batch_norm import SyncBatchNormalization

        if any(isinstance(layer, SyncBatchNormalization) for layer in model._flatten_layers()):
            raise UsageError(
                f"Model.fit was given the result of {_LABEL}, and the model has SyncBatchNormalization, whose "
                "statistics would count batches that are repeated.",
                "Use keras.layers.BatchNormalization, or give all ranks equally many batches.",
            )
