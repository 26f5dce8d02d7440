"""Shards of parameters: the range of each parameter that this rank updates, and its optimizer state.

For optimizers that update each element by itself. During such an update a parameter is the range of this rank, a view
of its memory, and so are its gradient and its state. The elements of a bucket are cut into one shard per rank.
"""

from __future__ import annotations

import contextlib
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


class Shards:
    """Shards of one optimizer's parameters; a parameter without a place is updated whole, by one rank."""

    def __init__(self, optimizer: torch.optim.Optimizer, process_set: Any) -> None:
        self._optimizer = optimizer
        self._process_set = process_set
        self._places: dict[Tensor, Place] = {}

    def __contains__(self, parameter: Tensor) -> bool:
        return parameter in self._places

    def place(self, buckets: Iterable[Sequence[Tensor]], collect: Callable[[], None]) -> None:
        """Give the parameters of these buckets their places.

        `collect()` gives all ranks the whole state; it is called if a parameter had another place.
        """
        places = {}
        for parameters in buckets:
            elements, before = sum(one.numel() for one in parameters), 0
            for one in parameters:
                places[one] = Place(elements, before)
                before += one.numel()
        if any(self._places.get(one, place) != place for one, place in places.items()):
            collect()
        self._places.update(places)

    def saved(self) -> dict[Tensor, tuple[int, int]]:
        """Return the places, for `load`."""
        return {one: (place.elements, place.before) for one, place in self._places.items()}

    def load(self, places: Mapping[Tensor, tuple[int, int]]) -> None:
        """Take the places that belong to a state, in place of all others."""
        self._places = {one: Place(*place) for one, place in places.items()}

    def own(self, parameter: Tensor) -> tuple[int, int]:
        """Return begin and end of this rank's range of the parameter, in elements."""
        elements, before = self._places[parameter]
        begin, end = shard(elements, self._process_set.rank(), self._process_set.size())
        count = parameter.numel()
        return min(max(begin - before, 0), count), min(max(end - before, 0), count)

    def gradient(self, parameter: Tensor) -> Tensor | None:
        """Return this rank's range of the gradient, a view where the gradient is contiguous; None for none."""
        begin, end = self.own(parameter)
        return None if parameter.grad is None or begin == end else parameter.grad.reshape(-1)[begin:end]

    @contextlib.contextmanager
    def alone(self, parameters: Iterable[Tensor]) -> Iterator[None]:
        """Context in which these parameters are the ranges of this rank; they have no gradients afterwards.

        A parameter without a gradient is left as it is.
        """
        given = [one for one in parameters if one.grad is not None]
        cut: list[tuple[Tensor, Tensor, Tensor]] = []
        try:
            for one in given:
                begin, end = self.own(one)
                gradient = self.gradient(one)
                if gradient is None:
                    one.grad = None
                    self._optimizer.state.pop(one, None)
                elif end - begin < one.numel():
                    one.grad = None
                    whole = one.data
                    one.data = whole.view(-1)[begin:end]
                    cut.append((one, whole, one.data))
                    one.grad = gradient
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
