"""A mini-batch, cut into micro-batches."""

from __future__ import annotations

from typing import Any

from paceline.errors import UsageError
from paceline.stages.execution.activations import members, whole
from paceline.stages.execution.tensors import Tensors


class Microbatches:
    """The micro-batches of a batch or of targets: a tensor, or a tuple or list of tensors, with as many rows each.

    Where rows do not go into `count` micro-batches evenly the first ones have one more. `shares`: the fraction of rows
    in each. Raises UsageError for other things, tensors with different numbers of rows, and fewer rows than `count`.
    """

    def __init__(self, value: Any, count: int, whose: str, tensors: Tensors) -> None:
        self._kind, found = members(value, whose, tensors.unfit)
        rows = {one.shape[0] if len(one.shape) else 0 for one in found}
        if len(rows) != 1 or min(rows) < count:
            said = " and ".join(str(one) for one in sorted(rows)) or "no"
            raise UsageError(
                f"{whose} has {said} rows: expected one number, of {count} (n_microbatches) at least.",
                "Leave out last batches that are too small (drop_last=True), or use fewer micro-batches.",
            )
        self._parts = [tensors.split(one, count) for one in found]
        self.shares = [part.shape[0] / found[0].shape[0] for part in self._parts[0]]

    def __getitem__(self, number: int) -> tuple[str, list[Any]]:
        """Its kind and tensors; see activations.members."""
        return self._kind, [parts[number] for parts in self._parts]

    def value(self, number: int) -> Any:
        """The same, as it was given."""
        return whole(*self[number])
