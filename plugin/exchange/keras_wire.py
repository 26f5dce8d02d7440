"""Base of the wires of Keras and of TensorFlow's tapes, which use a module of paceline.keras3."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from paceline.codecs.choice import Choice
from paceline.codecs.encoding import Encoding
from paceline.codecs.naming import unmarked
from paceline.errors import UsageError
from paceline.exchange.averaging import VariableMeans
from paceline.exchange.keras_slots import slots_of
from paceline.exchange.own_names import own_name
from paceline.exchange.wire import HALF_ROUNDING, Array, Bucket, Key, Work
from paceline.native.library import loaded


class KerasWire:
    """A Wire over `module`, paceline.keras3.on_tensorflow or on_torch."""

    def __init__(self, module: Any, library_name: str, settings: Any, word: str) -> None:
        """Construct the wire of one optimizer or tape, from paceline.keras3.settings and Declaration.word."""
        self.library = loaded(library_name)
        self.encoding = settings.encoding
        self.process_set = settings.process_set
        # Functions compiled with this exchange for eager execution; `module` fills and reads it.
        self.functions: dict[Any, Any] = {}
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()  # graphs that contain its operations
        self.optimizer: Callable[[], Any] | None = None  # a weak reference, once it has made an update
        self._averages: dict[tuple[str, bool], VariableMeans] = {}
        self._module = module
        self._label = own_name(self.library, self.process_set.process_set_id, settings.name)
        # The word keeps these names apart from operations without an exchange. The label omits it: ranks compare values
        # under the label, and their exchanges may differ.
        name = f"{self._label}.{word}"
        # An exchange must not keep its optimizer or tape alive.
        self._settings = dataclasses.replace(settings, name=name, groups=None, exchange=None)

    waits_later = False

    @property
    def label(self) -> str:
        """Name of the optimizer or tape, unique among the exchanges of this process."""
        return self._label

    def buckets(self, indices: Sequence[int], groups: Sequence[Sequence[int]], like: Sequence[Any]) -> list[Bucket]:
        """Return the buckets of the variables with these indices; `groups` has the positions that form a bucket.

        `like`: tensors or variables of the gradients' types, by position.
        """
        made = []
        for group in groups:
            members = tuple(indices[position] for position in group)
            name = self._settings.bucket(members, [like[position] for position in group])
            if len(members) > 1:
                # The digest identifies the variables: after a freeze, others of other shapes have the same positions.
                name = f"{name}_{zlib.crc32(repr(members).encode()):08x}"
            made.append(Bucket(name, members))
        return made

    def start(self, bucket: Bucket, tensors: Sequence[Any], exact: bool = False) -> Work:
        """Start to reduce `tensors`; `exact`: without the codec."""
        if not exact:
            self.encoding.begin(bucket.name, lambda: self.full_names(bucket), bucket.members, tensors)
        name = unmarked(bucket.name) if exact else bucket.name
        work: Work = self._module.start(tensors, self._settings, name)
        return work

    def full_names(self, bucket: Bucket, exact: bool = False) -> list[str]:
        """Return Horovod's names of the operations of `bucket`, one per member."""
        name = unmarked(bucket.name) if exact else bucket.name
        names: list[str] = self._module.full_names(name, len(bucket.members))
        return names

    def reduces_as(self) -> tuple[bool, float | None]:
        """Return if results are averages, and the unit roundoff of compression; None if unknown."""
        compression = self._module.hvd.Compression
        known = {compression.none: 0.0, compression.fp16: HALF_ROUNDING}
        return self._settings.op == self._settings.average, known.get(self._settings.compression)

    def waits_here(self, tensors: Sequence[Any]) -> bool:
        """Return False: sparse gradients are made dense before the exchange."""
        return False

    def start_means(
        self,
        weights: Mapping[int, Any],
        values: Mapping[int, Any] | None = None,
        work: Any = None,
        encoded: bool = False,
        kind: str = "",
    ) -> Callable[[], dict[int, Any]]:
        """Average at once, and return a function that returns the means."""
        found = self._means(kind, encoded)(weights, work, values)
        return lambda: found

    def _means(self, kind: str, encoded: bool) -> VariableMeans:
        """Return the VariableMeans of one kind, whose operations TensorFlow compiles once."""
        if (kind, encoded) not in self._averages:
            name = f"{self._settings.name}_average{kind and '_'}{kind}"
            encoding = self.encoding if encoded else Encoding(self.library, self.process_set, Choice())
            settings = self._averaging(name=name, encoding=encoding)
            self._averages[kind, encoded] = VariableMeans(self._module, settings)
        return self._averages[kind, encoded]

    def moments(self, weights: Mapping[int, Any]) -> Mapping[str, Mapping[int, Any]]:
        """Return variables of the optimizer, {} before its first update. Raises UsageError if it keeps no moments."""
        optimizer = None if self.optimizer is None else self.optimizer()
        return {} if optimizer is None else moments_of(optimizer, weights)

    def trial(self) -> Any:
        """Raise UsageError: trial steps are not available under Keras."""
        raise UsageError(
            f"{self._label}: compensation='own' was given to an optimizer of Keras.",
            "Use correction=0.01, or paceline.torch.",
        )

    def among(self, process_set: Any) -> Any:
        """Return a wire of the same variables over another process set."""
        wire = copy.copy(self)
        wire.process_set, wire.encoding = process_set, Encoding(self.library, process_set, Choice())
        wire._settings = self._averaging(process_set=process_set, encoding=wire.encoding)
        return wire

    def _averaging(self, **changes: Any) -> Any:
        """Return settings with `changes` for plain averages, without compression."""
        return dataclasses.replace(
            self._settings,
            op=self._settings.average,
            compression=self._module.hvd.Compression.none,
            gradient_predivide_factor=1.0,
            **changes,
        )

    def sums(self) -> Any:
        """Return settings for plain sums, without compression."""
        return dataclasses.replace(self._averaging(), op=self._module.hvd.Sum)

    def shared(self, weights: Mapping[int, Any], members: set[Key]) -> Mapping[int, Any]:
        """Omit the weights of layers that stay on their rank."""
        return {index: weight for index, weight in weights.items() if index in members}

    def update_set(self, weights: Mapping[int, Any]) -> frozenset[int] | None:
        """Return the indices of `weights`: Keras updates those with gradients."""
        return frozenset(weights)

    def as_sent(self, tensor: Any) -> Array:
        """Return the tensor as an array."""
        return np.asarray(tensor)

    def plain(self, result: Any) -> Any:
        """Return the result unchanged: results in the library are arrays."""
        return result

    def from_plain(self, value: Any) -> Any:
        """Return the value unchanged."""
        return value

    def value(self, weight: Any) -> Any:
        """Return the tensor in a weight."""
        return self._module.value(weight)

    def trains(self, weight: Any) -> bool:
        """Return True if the weight is trainable."""
        return bool(weight.trainable)

    def assign(self, weight: Any, value: Any) -> None:
        """Assign a tensor or array to the weight."""
        weight.assign(value)

    def rescheduled(self, rate: Callable[[Any], Any]) -> AbstractContextManager[Any]:
        """Return an empty context: the optimizer asks for the rate by itself."""
        return contextlib.nullcontext()


def moments_of(optimizer: Any, weights: Mapping[int, Any]) -> dict[str, dict[int, Any]]:
    """Return the variables that a Keras optimizer keeps for each weight, in its shape, by the names of its lists.

    Raises UsageError if there are none.
    """
    trained = list(optimizer._trainable_variables)
    kept: dict[str, dict[int, Any]] = {}
    for name, index, one in slots_of(optimizer):
        if name in ("_accumulated_gradients", "_model_variables_moving_average") or index not in weights:
            continue
        if one.shape == trained[index].shape and "float" in str(one.dtype):
            kept.setdefault(name.strip("_"), {})[index] = one
    if not kept:
        raise UsageError(
            f"moments_every was given together with the optimizer {optimizer.name!r}, which keeps no moments.",
            "Leave moments_every out, or use an optimizer with momentum, such as Adam.",
        )
    return kept
