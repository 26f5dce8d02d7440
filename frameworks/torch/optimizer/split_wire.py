"""Operations of the split exchange in PyTorch (paceline.split.exchange.OwnersWire)."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paceline.exchange.wire import Bucket
from paceline.split.exchange import EVERYONE, Reduced
from paceline.split.spans import spans, spans_of
from paceline.torch.exchange.tensors import TorchTensors
from paceline.torch.names import ParameterNames
from paceline.torch.optimizer.buckets import fits
from paceline.torch.split.shards import Shards
from paceline.torch.split.weights import InFlightWeights, without_gradients


class _Members(NamedTuple):
    """Parameters of a bucket, the same in each update."""

    bucket: Bucket
    parameters: list[Tensor]
    dtype: torch.dtype
    cut: bool


class OwnersTensors(TorchTensors):
    """Parameters and gradients of owners, and shards of buckets."""

    library: ctypes.CDLL
    process_set: Any
    scope: str
    reload = (
        "Call load_state_dict() on all ranks with a state from consolidate_state_dict(); "
        "hvd.elastic.TorchState does this."
    )
    elementwise = False  # the optimizer updates each element by itself
    encodes: Callable[[Bucket], bool]  # True if gradients of the bucket may be sent rounded
    _compresses: bool
    _optimizer: torch.optim.Optimizer
    _names: ParameterNames

    @cached_property
    def of_shards(self) -> Shards:
        """Shards of the optimizer's parameters."""
        return Shards(self._optimizer, self.process_set)

    @cached_property
    def _weights(self) -> InFlightWeights:
        return InFlightWeights(self.library, self.process_set, self.scope, self.of_shards)

    @cached_property
    def _members(self) -> dict[str, _Members]:
        return {}

    def cuts(self, bucket: Bucket) -> bool:
        """Return True if every rank updates a shard of the bucket."""
        if not self.elementwise:
            return False
        known = self._members.get(bucket.name)
        if known is None or known.bucket is not bucket or known.parameters[0].dtype is not known.dtype:
            parameters = self._parameters_of([bucket])
            alike = len({one.dtype for one in parameters}) == 1 and all(fits(one, sys.maxsize) for one in parameters)
            cut = alike and not self._compresses and not self.encodes(bucket)
            known = self._members[bucket.name] = _Members(bucket, parameters, parameters[0].dtype, cut)
        return known.cut

    def cut(self, buckets: Sequence[Bucket], collect: Callable[[], None]) -> None:
        """Cut the parameters of these buckets into shards; `collect()` is called if shards have changed."""
        self.of_shards.place([self._members[bucket.name].parameters for bucket in buckets], collect)

    def shards(self, buckets: Sequence[Bucket]) -> AbstractContextManager[None]:
        """Return a context in which parameters of these buckets are the shards of this rank."""
        return self.of_shards.alone(itertools.chain(*(self._members[bucket.name].parameters for bucket in buckets)))

    def spans(self, ranks: int) -> list[list[tuple[str, int]]]:
        """Return all parameters as (name, bytes), from the last one on; one owner per span."""
        named = [(name, parameter.nbytes) for name, parameter in self._names.items()]
        found = spans([count for _, count in named], spans_of(ranks))
        return [[named[number] for number in span] for span in found]

    def first(self, bucket: Bucket) -> str:
        """Return the name of the first parameter of a bucket."""
        return self._names[self._names.parameter(str(bucket.members[0]))]

    def send(self, updated: Sequence[Reduced]) -> None:
        """Start to broadcast or all-gather the parameters of the buckets."""
        for bucket, owner, sent in updated:
            members = self._members[bucket.name].parameters if owner == EVERYONE else self._parameters_of([bucket])
            self._weights.send(bucket, members, self._root(owner), sent)

    def in_reading_order(self, buckets: Sequence[Bucket]) -> list[Bucket]:
        """Return `buckets` in the order in which the last forward pass read them."""
        return self._weights.in_reading_order(buckets)

    def land(self, bucket: Bucket | None = None) -> None:
        """Wait for the parameters in flight of the bucket, or for all."""
        self._weights.land(bucket)

    def drop(self) -> None:
        """Discard the parameters in flight."""
        self._weights.drop()
        self.of_shards.load({})

    @contextlib.contextmanager
    def left_out(self, buckets: Sequence[Bucket]) -> Iterator[None]:
        """Return a context that hides these gradients, and drops the optimizer state at its end."""
        parameters = self._parameters_of(buckets)
        with without_gradients(parameters):
            yield
        for one in parameters:
            self._optimizer.state.pop(one, None)

    def share_gradients(self, bucket: Bucket, owner: int) -> Callable[[], None]:
        """Start to give all ranks the gradients of trained parameters; return a function that waits."""
        trained = [one for one in self._parameters_of([bucket]) if one.requires_grad]
        for one in trained:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
        if owner == EVERYONE:
            return self._weights.share_shards(f"{bucket.name}.gradients", self._parameters_of([bucket]))
        return self._weights.share(f"{bucket.name}.gradients", [one.grad for one in trained], self._root(owner))

    def _root(self, owner: int) -> int:
        return EVERYONE if owner == EVERYONE else int(self.process_set.ranks[owner])

    def _parameters_of(self, buckets: Sequence[Bucket]) -> list[Tensor]:
        return self._names.parameters(str(member) for bucket in buckets for member in bucket.members)
