"""Which versions of a stage's weights are in memory."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class VersionedWeights(ABC):
    """The weights of a stage: the newest, and those older ones that somebody refers to.

    `count`: updates so far, the version of the newest. `previous`: the version of one update before, where it was asked
    for.
    """

    def __init__(self, newest: Any) -> None:
        self.count = 0
        self.previous: Any = None
        self._newest = newest
        # The versions whose memory is not the newest's, while somebody refers to them.
        self._older: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def newest(self) -> Any:
        """On the weights' own memory."""
        return self._newest

    @property
    def copies(self) -> int:
        """How many sets of weights are in memory."""
        return 1 + len(self._older)

    def of_count(self, count: int) -> Any:
        """The newest weights or those of one update before: `count` says after how many updates."""
        if count == self.count:
            return self._newest
        assert count == self.count - 1 and self.previous is not None, (count, self.count)
        return self.previous

    def update(self, apply: Callable[[], None], keep: bool, as_previous: bool) -> None:
        """Call `apply`, which changes the weights. `keep`: somebody refers to the weights so far, which stay as they
        are, in their memory; `as_previous`: `of_count` will be asked for them.
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
        """Follow what somebody did to the weights between steps."""

    @abstractmethod
    def _leave(self) -> None:
        """What is applied next must not change the newest version."""

    @abstractmethod
    def _made(self) -> Any:
        """A version on the weights' own memory."""
