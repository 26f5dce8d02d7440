"""Division of a mini-batch into micro-batches."""

from __future__ import annotations

from typing import Any

from paceline.errors import UsageError
from paceline.stages.execution.tensors import Tensors


def rows_of_parts(rows: int, count: int) -> list[int]:
    """Return the rows of each of `count` micro-batches; if the rows do not divide, the first ones have one more."""
    each, more = divmod(rows, count)
    return [each + (number < more) for number in range(count)]


class Microbatches:
    """The micro-batches of a batch or of targets, whose tensors have `rows` rows each.

    Tensors without dimensions belong to every micro-batch. `shares`: the fraction of rows in each. Raises UsageError
    for values that cannot be sent, tensors with different numbers of rows, and fewer rows than `least`.
    """

    def __init__(self, value: Any, least: int, whose: str, tensors: Tensors) -> None:
        self._tensors = tensors
        self._kind, self._found = tensors.members(value, whose)
        rows = {one.shape[0] for one in self._found if len(one.shape)}
        if len(rows) != 1 or min(rows) < least:
            said = " and ".join(str(one) for one in sorted(rows)) or "no"
            needed = f", of {least} (n_microbatches) at least" if least else ""
            raise UsageError(
                f"{whose} has {said} rows: expected one number{needed}.",
                "Leave out last batches that are too small (drop_last=True), or use fewer micro-batches."
                if least
                else "Give tensors with as many rows each.",
            )
        self.rows = rows.pop()

    def cut(self, count: int) -> Microbatches:
        """Cut into `count` micro-batches of `rows_of_parts`."""
        self._parts = [self._tensors.split(one, count) if len(one.shape) else [one] * count for one in self._found]
        self.shares = [one / self.rows if self.rows else 1 / count for one in rows_of_parts(self.rows, count)]
        return self

    def __getitem__(self, number: int) -> tuple[str, list[Any]]:
        """Return structure and tensors of a micro-batch; see Tensors.members."""
        return self._kind, [parts[number] for parts in self._parts]
