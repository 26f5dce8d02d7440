"""Versions of a stage's weights in memory."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class VersionedWeights(ABC):
    """The weights of a stage: the newest, and those older versions that are still referenced.

    `count`: updates so far, the version of the newest. `previous`: the version one update earlier, if requested.
    """

    def __init__(self, newest: Any) -> None:
        self.count = 0
        self.previous: Any = None
        self._newest = newest
        # Versions with their own memory, as long as they are referenced.
        self._older: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def newest(self) -> Any:
        """The newest version, in the weights' own memory."""
        return self._newest

    @property
    def copies(self) -> int:
        """Number of sets of weights in memory."""
        return 1 + len(self._older)

    def of_count(self, count: int) -> Any:
        """Return the weights after `count` updates: the newest, or those one update earlier."""
        if count == self.count:
            return self._newest
        assert count == self.count - 1 and self.previous is not None, (count, self.count)
        return self.previous

    def update(self, apply: Callable[[], None], keep: bool, as_previous: bool) -> None:
        """Call `apply`, which changes the weights.

        `keep`: the current weights are still referenced, and keep their values and memory. `as_previous`: `of_count`
        will return them.
        """
        before = self._newest
        self.previous = before if as_previous else None
        if keep or as_previous:
            self._leave()
        apply()
        self.count += 1
        if keep or as_previous:
            self._newest = self._made()
            self._older.add(before)

    @abstractmethod
    def refresh(self) -> None:
        """Follow changes that other code made to the weights between steps."""

    @abstractmethod
    def _leave(self) -> None:
        """Detach the newest version from the memory that the next update changes."""

    @abstractmethod
    def _made(self) -> Any:
        """Return a version in the weights' own memory."""
