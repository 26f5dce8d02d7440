"""Objects that this process keeps for one of Horovod's libraries: for one world, or until the process ends.

A module that needs a table declares a class for it and gets its one object here. `world(library).of(Kind)` ends with
the world; `process(library).of(Kind)` survives shutdown() and init(). Modules therefore need not detect new worlds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class World:
    """Objects from one init() of a library to the next one after shutdown()."""

    def __init__(self) -> None:
        self._made: dict[type, Any] = {}

    def of(self, kind: type[T], make: Callable[[], T] | None = None) -> T:
        """Return the one object of `kind`, made at its first use by `make()`, or `kind()`."""
        found: T | None = self._made.get(kind)
        # Two threads at the same time both get the object of the first one.
        return self._made.setdefault(kind, (make or kind)()) if found is None else found

    def put(self, one: T) -> T:
        """Set `one` as the object of its kind."""
        self._made[type(one)] = one
        return one

    def find(self, kind: type[T]) -> T | None:
        """Return the object of `kind`, or None."""
        return self._made.get(kind)


class Process(World):
    """Objects for the lifetime of this process; `world` is the library's current world, or its next one."""

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__()
        self.library = library
        self.world = World()


# By the library's handle. The only global table: all others are objects in it.
_processes: dict[int, Process] = {}


def process(library: ctypes.CDLL) -> Process:
    """Return the objects kept for `library` until the process ends."""
    found = _processes.get(library._handle)
    return _processes.setdefault(library._handle, Process(library)) if found is None else found


def world(library: ctypes.CDLL) -> World:
    """Return the objects of the current world of `library`, which changes after shutdown() and init()."""
    return process(library).world


def begin_world(library: ctypes.CDLL) -> None:
    """Start a new world of `library`."""
    process(library).world = World()


def everywhere(kind: type[T]) -> Iterator[tuple[ctypes.CDLL, T]]:
    """Yield each library of this process that has a lasting object of `kind`, with that object."""
    for one in list(_processes.values()):
        found = one.find(kind)
        if found is not None:
            yield one.library, found
