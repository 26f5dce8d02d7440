"""Operations of the split exchange for Keras (paceline.split.exchange.OwnersWire): whole variables, updated at once."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np

from paceline.codecs.naming import unmarked
from paceline.errors import UsageError
from paceline.exchange.eager import EagerOps
from paceline.exchange.keras_wire import KerasWire
from paceline.exchange.ops import Cell, Ops
from paceline.exchange.wire import Bucket, Work
from paceline.split.exchange import Reduced
from paceline.split.spans import spans, spans_of

# Part of the names of broadcasts: selects the linear collective (core/naming/name_mark.h).
_LINEAR = ">none_linear>"


class OwnersKerasWire(KerasWire):
    """Variables and gradients of owners; a bucket is sent as one flat tensor."""

    # Gradients of the current update, whose reduces every rank makes.
    awaited: Sequence[Any] = ()
    reload = "Load the optimizer's state on all ranks: model.load_weights(...) or hvd.load_model(...)."

    # --- of the backend -----------------------------------------------------------------------------------------------

    @abstractmethod
    def packed(self, tensors: Sequence[Any]) -> Any:
        """Return one flat tensor of these; a single tensor unchanged."""

    @abstractmethod
    def unpacked(self, flat: Any, like: Sequence[Any]) -> list[Any]:
        """Return the tensors in `flat`, in the shapes of the tensors or variables `like`."""

    @abstractmethod
    def reduce_name(self, owner: int, name: str) -> str:
        """Return the name of a reduce to `owner`, a rank in the process set."""

    @abstractmethod
    def broadcasts(self, tensors: Sequence[Any], roots: Sequence[int], names: Sequence[str]) -> list[Any]:
        """Broadcast each tensor from its root, a global rank, and return the results; all at the same time."""

    @abstractmethod
    def squares(self, tensors: Sequence[Any]) -> Any:
        """Return the sum of all squares in float64."""

    @abstractmethod
    def count_infinite(self, tensors: Sequence[Any]) -> Any:
        """Return the number of elements that are not finite, in float64."""

    @abstractmethod
    def totals(self, number: Any, word: str) -> Any:
        """Return a float64 vector with the scalar `number` of each rank; `word` makes the name unique."""

    @abstractmethod
    def nan_if_any(self, numbers: Any, zero: Any) -> Any:
        """Return NaN if a number of this vector is above 0, else `zero`."""

    @abstractmethod
    def filled(self, like: Any, number: Any) -> Any:
        """Return a tensor of this number, in the shape and type of `like`."""

    @abstractmethod
    def zero_after(self, tensors: Sequence[Any]) -> Any:
        """Return 0, whose computation needs the values of all `tensors`: what has no use is not run in a graph."""

    @abstractmethod
    def norm_without(self, squares: Any, rank: int) -> Any:
        """Return the root of the sum of `squares`, without the one of `rank`."""

    @abstractmethod
    def emptied(self, variable: Any) -> None:
        """Release the memory of a variable, which has no elements then."""

    # --- of the exchange ----------------------------------------------------------------------------------------------

    @property
    def _ops(self) -> Ops:
        wire: Any = self  # a Wire of the backend
        return wire.graph_ops or EagerOps()

    @cached_property
    def updates(self) -> Cell:
        """Number of updates; also those of compiled steps, of which Python sees nothing."""
        return self._ops.cell(0)

    @cached_property
    def _used(self) -> Cell:
        """Last number that ranks have exchanged: all ranks use it here, so that none leaves out the exchange."""
        return self._ops.cell(0.0)

    @property
    def variables(self) -> list[Any]:
        """Trained variables of the optimizer. Raises UsageError before it is built."""
        optimizer = None if self.optimizer is None else self.optimizer()
        if optimizer is None or not optimizer._trainable_variables:
            raise UsageError(
                f"{self.label}: gradients were reduced before the optimizer knew its variables, which ranks share.",
                "Call optimizer.build(model.trainable_variables) first.",
            )
        return list(optimizer._trainable_variables)

    def start(self, bucket: Bucket, tensors: Sequence[Any], exact: bool = False, owner: int | None = None) -> Work:
        """Start to reduce `tensors`, with `owner` to that rank only."""
        if owner is None:
            return super().start(bucket, tensors, exact)
        name, flat = self.reduce_name(owner, bucket.name), self.packed(tensors)
        members = ["+".join(map(str, bucket.members))]
        self.encoding.begin(bucket.name, lambda: self._module.full_names(name, 1), members, [flat])
        work = self._module.start([flat], self._settings, name)
        return lambda: self.unpacked(work()[0], tensors)

    def spans(self, ranks: int) -> list[list[tuple[str, int]]]:
        """Return all variables as (index, bytes), from the last one on; one owner per span."""
        named = [(str(index), _count_bytes(one)) for index, one in enumerate(self.variables)]
        found = spans([count for _, count in named], spans_of(ranks))
        return [[named[number] for number in span] for span in found]

    def groups(self, indices: Sequence[int], like: Sequence[Any]) -> list[list[int]]:
        """Return the positions of gradients that form a bucket: of one span, and of one type."""
        number_of = {
            int(name): number
            for number, span in enumerate(self.spans(int(self.process_set.size())))
            for name, _ in span
        }
        wire: Any = self
        found: dict[tuple[int, str], list[int]] = {}
        for position, index in enumerate(indices):
            found.setdefault((number_of[index], wire.like(like[position])[1]), []).append(position)
        return list(found.values())

    def first(self, bucket: Bucket) -> str:
        """Return the index of the first variable of a bucket, as a name."""
        return str(bucket.members[0])

    def cuts(self, bucket: Bucket) -> bool:
        """Return False: each variable has one owner."""
        return False

    def cut(self, buckets: Sequence[Bucket], collect: Callable[[], None]) -> None:
        """Do nothing: there are no shards."""

    def shards(self, buckets: Sequence[Bucket]) -> AbstractContextManager[None]:
        """Return an empty context: there are no shards."""
        return nullcontext()

    def left_out(self, buckets: Sequence[Bucket]) -> AbstractContextManager[None]:
        """Return an empty context: the optimizer itself updates its own variables only."""
        return nullcontext()

    def in_reading_order(self, buckets: Sequence[Bucket]) -> list[Bucket]:
        """Return the buckets as they are: they are sent together."""
        return list(buckets)

    def send(self, updated: Sequence[Reduced]) -> None:
        """Broadcast the variables of all buckets from their owners, and wait."""
        variables = self.variables
        many = [[variables[int(member)] for member in one.bucket.members] for one in updated]
        # A step that fails before its gradients are reduced must send no weights either.
        with self._ops.after(self.awaited):
            found = self.broadcasts(
                [self.packed([self.value(one) for one in those]) for those in many],
                [int(self.process_set.ranks[one.owner]) for one in updated],
                [f"{_LINEAR}{unmarked(one.bucket.name)}.weights" for one in updated],
            )
        for one, those, flat in zip(updated, many, found, strict=True):
            if not one.here(int(self.process_set.rank())):
                for variable, value in zip(those, self.unpacked(flat, those), strict=True):
                    self.assign(variable, value)
        # Every rank takes part in all messages, also in those whose results it does not use.
        self.updates.assign(self.updates.read() + 1 + self.zero_after([*found, *self.awaited]))

    def zero_if_finite(self, results: Sequence[Any], others: Sequence[Any]) -> Any:
        """Return 0 if the `results` of all owners are finite, else NaN; also wait for `others`."""
        found = self.nan_if_any(self.totals(self.count_infinite(results), "finite"), self.zero_after(others))
        self._used.assign(found)
        return found

    def norm_of_others(self, grads: Sequence[Any]) -> Any:
        """Return the norm of the gradients that other ranks own, in float64; `grads` are those of this rank."""
        found = self.norm_without(self.totals(self.squares(grads), "norm"), int(self.process_set.rank()))
        self._used.assign(found)
        return found

    def land(self, bucket: Bucket | None = None) -> None:
        """Do nothing: nothing is in flight between updates."""

    def drop(self) -> None:
        """Do nothing: nothing is in flight between updates."""


def _count_bytes(variable: Any) -> int:
    dtype = getattr(variable.dtype, "name", str(variable.dtype)).removeprefix("torch.")
    item_bytes = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    return math.prod(variable.shape) * item_bytes
