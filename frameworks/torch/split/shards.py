"""Shards of parameters: the range of each parameter that this rank updates, and its optimizer state.

For optimizers that update each element by itself. During such an update a parameter is the range of this rank, a view
of its memory, and so are its gradient and its state. The elements of a bucket are cut into one shard per rank.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import ASGD, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, NAdam, RAdam, RMSprop, Rprop

from paceline.native.halves import shard

# Optimizers of torch whose update of an element depends on nothing but this element's gradient and state.
ELEMENTWISE = (Adadelta, Adagrad, Adam, Adamax, AdamW, ASGD, NAdam, RAdam, RMSprop, Rprop, SGD)


class Place(NamedTuple):
    """Where a parameter lies in its bucket: the elements of the bucket, and those before the parameter."""

    elements: int
    before: int

    def range(self, count: int, rank: int, ranks: int) -> tuple[int, int]:
        """Return begin and end of a rank's range of the parameter, which has `count` elements."""
        begin, end = shard(self.elements, rank, ranks)
        return min(max(begin - self.before, 0), count), min(max(end - self.before, 0), count)


class Shards:
    """Shards of one optimizer's parameters; a parameter without a place is updated whole, by one rank."""

    def __init__(self, optimizer: torch.optim.Optimizer, process_set: Any) -> None:
        self._optimizer = optimizer
        self._process_set = process_set
        self._places: dict[Tensor, Place] = {}
        self._placed: Sequence[Sequence[Tensor]] = ()  # by the last call of `place`
        self._ranges: dict[Tensor, tuple[int, int]] = {}  # what `own` returns; it is asked several times a step

    def __contains__(self, parameter: Tensor) -> bool:
        return parameter in self._places

    def parameters(self) -> Iterator[Tensor]:
        """Return all parameters of the optimizer."""
        return (one for group in self._optimizer.param_groups for one in group["params"])

    def place(self, buckets: Sequence[Sequence[Tensor]], collect: Callable[[], None]) -> None:
        """Give the parameters of these buckets their places.

        `collect()` gives all ranks the whole state; it is called if a parameter had another place. Lists of parameters
        that are the same objects as in the last call have their places already.
        """
        if len(buckets) == len(self._placed) and all(map(operator.is_, buckets, self._placed)):
            return
        places = {}
        for parameters in buckets:
            elements, before = sum(one.numel() for one in parameters), 0
            for one in parameters:
                places[one] = Place(elements, before)
                before += one.numel()
        if any(self._places.get(one, place) != place for one, place in places.items()):
            collect()
        self.load({**self._places, **places})
        self._placed = buckets

    def saved(self) -> dict[Tensor, tuple[int, int]]:
        """Return the places, for `load`."""
        return {one: (place.elements, place.before) for one, place in self._places.items()}

    def load(self, places: Mapping[Tensor, tuple[int, int]]) -> None:
        """Take the places that belong to a state, in place of all others."""
        self._placed = ()
        rank, ranks = (self._process_set.rank(), self._process_set.size()) if places else (0, 1)
        self._places = {one: Place(*place) for one, place in places.items()}
        self._ranges = {one: place.range(one.numel(), rank, ranks) for one, place in self._places.items()}

    def own(self, parameter: Tensor) -> tuple[int, int]:
        """Return begin and end of this rank's range of the parameter, in elements."""
        return self._ranges[parameter]

    def gradient(self, parameter: Tensor) -> Tensor | None:
        """Return this rank's range of the gradient, a view where the gradient is contiguous; None for none."""
        begin, end = self._ranges[parameter]
        return None if parameter.grad is None or begin == end else parameter.grad.reshape(-1)[begin:end]

    @contextlib.contextmanager
    def alone(self, parameters: Iterable[Tensor]) -> Iterator[None]:
        """Context in which these parameters are the ranges of this rank; they have no gradients afterwards.

        A parameter without a gradient is left as it is.
        """
        cut: list[tuple[Tensor, Tensor, Tensor]] = []
        given = []
        try:
            for one in parameters:
                gradient = one.grad
                if gradient is None:
                    continue
                given.append(one)
                begin, end = self._ranges[one]
                if begin == end:
                    one.grad = None
                    self._optimizer.state.pop(one, None)
                elif end - begin < gradient.numel():
                    one.grad = None
                    whole = one.data
                    piece = one.data = whole.view(-1)[begin:end]
                    cut.append((one, whole, piece))
                    one.grad = gradient.reshape(-1)[begin:end]
                    self._cut_state(one, whole.shape, begin, end)
            yield
        finally:
            for one in given:
                one.grad = None
            for one, whole, piece in cut:
                if one.data.data_ptr() != piece.data_ptr():  # the optimizer made another tensor
                    piece.copy_(one.data)
                one.data = whole

    def _cut_state(self, parameter: Tensor, shape: torch.Size, begin: int, end: int) -> None:
        """Keep this rank's range of state that has the whole shape of the parameter."""
        state = self._optimizer.state.get(parameter, {})
        for key, one in state.items():
            if isinstance(one, Tensor) and one.shape == shape:
                state[key] = one.reshape(-1)[begin:end].clone()


def joined(parameter: Tensor, pieces: Sequence[tuple[tuple[int, int], Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the whole state of a parameter from (range, state) of all ranks that have some.

    A tensor as long as the range is a piece, unless it has the shape of the parameter; all ranks have the same of
    anything else.
    """
    found = dict(pieces[0][1])
    for key, first in found.items():
        (begin, end), _ = pieces[0]
        if not isinstance(first, Tensor) or first.shape == parameter.shape or first.shape != (end - begin,):
            continue
        whole = torch.empty(parameter.numel(), dtype=first.dtype, device=first.device)
        for (begin, end), state in pieces:
            whole[begin:end] = state[key]
        found[key] = whole.view(parameter.shape)
    return found
