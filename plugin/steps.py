"""Number of steps that this rank has made, where Python runs every step."""

from __future__ import annotations

_most = 0


class Steps:
    """Counts the steps of one optimizer or pipeline."""

    def __init__(self) -> None:
        self._made = 0

    def count(self) -> None:
        """Count one step."""
        global _most
        self._made += 1
        _most = max(_most, self._made)


def most_steps() -> int:
    """Return the largest number of steps of any optimizer or pipeline in this process."""
    return _most
