"""A mini-batch, cut into micro-batches."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from paceline.errors import UsageError
from paceline.stages.execution.activations import members, whole


class Microbatches:
    """The micro-batches of a batch or of targets: a tensor, or a tuple or list of tensors, with as many rows each.

    Where rows do not go into `count` micro-batches evenly the first ones have one more. `shares`: the fraction of rows
    in each. Raises UsageError for other things, tensors with different numbers of rows, and fewer rows than `count`.
    """

    def __init__(self, value: Any, count: int, whose: str) -> None:
        self._kind, tensors = members(value, whose)
        rows = {one.shape[0] if one.dim() else 0 for one in tensors}
        if len(rows) != 1 or min(rows) < count:
            found = " and ".join(str(one) for one in sorted(rows)) or "no"
            raise UsageError(
                f"{whose} has {found} rows: expected one number, of {count} (n_microbatches) at least.",
                "Leave out last batches that are too small (drop_last=True), or use fewer micro-batches.",
            )
        self._parts = [one.tensor_split(count) for one in tensors]
        self.shares = [part.shape[0] / tensors[0].shape[0] for part in self._parts[0]]

    def __getitem__(self, number: int) -> tuple[str, list[Tensor]]:
        """Its kind and tensors; see activations.members."""
        return self._kind, [parts[number] for parts in self._parts]

    def value(self, number: int) -> Any:
        """The same, as it was given."""
        return whole(*self[number])
