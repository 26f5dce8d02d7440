"""A parameter of an optimizer."""

from __future__ import annotations

from torch import Tensor

UNCOUNTED = -1


class Member:
    """One parameter, and where its gradient stands in the update that is being made.

    Objects, not tensors, are what a gradient is counted and looked up by: a tensor's hash is a call of Python.
    """

    __slots__ = (
        "count",
        "fresh",
        "generation",
        "idle",
        "name",
        "owned",
        "parameter",
        "small",
        "sparse_dims",
        "submitted",
        "version",
    )

    def __init__(self, parameter: Tensor, name: str) -> None:
        self.parameter = parameter
        self.name = name
        self.count = 0  # gradients since the last update
        self.fresh = False  # whether parameter.grad was None before the first of them
        self.small = False  # whether it is to travel in a bucket (buckets.py), should it be dense
        self.sparse_dims: int | None = None  # what the ranks have agreed on (layouts.py); None: nothing yet
        self.idle = False  # whether no rank had a gradient of it when they were asked last (layouts.py)
        self.generation = 0  # how many parameters of other shapes had this name before, where the library keeps shapes
        self.owned = False  # whether no other optimizer combines its gradients (owners.py)
        self.submitted: Tensor | None = None  # parameter.grad when it was submitted,
        self.version = 0  # and how often it had been written to

    @property
    def active(self) -> bool:
        """Whether it takes part in this update: a frozen one does not, unless it had a gradient before."""
        return self.count > 0 or self.parameter.requires_grad

    def submit(self, version_counts: bool) -> None:
        """Its gradient is submitted now. `version_counts`: Horovod writes results where torch does not count it."""
        gradient = self.submitted = self.parameter.grad
        counted = gradient is not None and version_counts and not gradient.is_inference()
        self.version = gradient._version if counted else UNCOUNTED

    def changed(self) -> str:
        """What became of its gradient since it was submitted; "": nothing."""
        gradient = self.parameter.grad
        if gradient is not self.submitted:
            return "none" if gradient is None else "another tensor"
        if self.version != UNCOUNTED and gradient is not None and gradient._version != self.version:
            return "other values in it"
        return ""
