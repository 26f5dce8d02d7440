"""What this process keeps for one of Horovod's libraries: as long as its ranks stay together, or for good.

Whoever needs a table declares a class of it, and asks for its one object here: `world(library).of(Kind)` ends with the
world, `process(library).of(Kind)` outlasts shutdown() and init(). So nothing has to compare worlds, or forget.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class World:
    """From one init() of a library to the next one after shutdown()."""

    def __init__(self) -> None:
        self._made: dict[type, Any] = {}

    def of(self, kind: type[T], make: Callable[[], T] | None = None) -> T:
        """The one object of `kind`; at its first use `make()`, or `kind()`."""
        found: T | None = self._made.get(kind)
        # Of two threads that come at the same time both get what the first one made.
        return self._made.setdefault(kind, (make or kind)()) if found is None else found

    def put(self, one: T) -> T:
        """Have `one` as the object of its kind."""
        self._made[type(one)] = one
        return one

    def find(self, kind: type[T]) -> T | None:
        """The one object of `kind`, if it was ever asked for."""
        return self._made.get(kind)


class Process(World):
    """As long as this process; `world` is the one that the library is in, or comes to."""

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__()
        self.library = library
        self.world = World()


# By the library's handle. The only table of this kind: all others are in one of these.
_processes: dict[int, Process] = {}


def process(library: ctypes.CDLL) -> Process:
    """What is kept of `library` for good."""
    found = _processes.get(library._handle)
    return _processes.setdefault(library._handle, Process(library)) if found is None else found


def world(library: ctypes.CDLL) -> World:
    """The world that the ranks of `library` are in: another one after shutdown() and init()."""
    return process(library).world


def begin_world(library: ctypes.CDLL) -> None:
    """The ranks of `library` begin anew."""
    process(library).world = World()


def everywhere(kind: type[T]) -> Iterator[tuple[ctypes.CDLL, T]]:
    """Each library of this process that has a lasting object of `kind`, with it."""
    for one in list(_processes.values()):
        found = one.find(kind)
        if found is not None:
            yield one.library, found
