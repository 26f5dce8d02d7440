"""A parameter of an optimizer."""

from __future__ import annotations

from torch import Tensor


class Member:
    """One parameter, and where its gradient stands in the update that is being made.

    Objects, not tensors, are what a gradient is counted and looked up by: a tensor's hash is a call of Python.
    """

    __slots__ = ("count", "fresh", "name", "parameter", "small", "sparse_dims")

    def __init__(self, parameter: Tensor, name: str) -> None:
        self.parameter = parameter
        self.name = name
        self.count = 0  # gradients since the last update
        self.fresh = False  # whether parameter.grad was None before the first of them
        self.small = False  # whether it is to travel in a bucket (buckets.py), should it be dense
        self.sparse_dims: int | None = None  # what the ranks have agreed on (layouts.py); None: nothing yet

    @property
    def active(self) -> bool:
        """Whether it takes part in this update: a frozen one does not, unless it had a gradient before."""
        return self.count > 0 or self.parameter.requires_grad
