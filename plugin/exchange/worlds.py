"""Who is told when the ranks of a library begin anew: init() after shutdown()."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

_alive: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(exchange: Any) -> None:
    """Have `exchange.forget()` called when the ranks of its wire's library begin anew, while it lives."""
    _alive.add(exchange)


def new_world(library: ctypes.CDLL) -> None:
    """The ranks of `library` begin anew: nothing is in flight any more."""
    for exchange in list(_alive):
        if exchange.wire.library._handle == library._handle:
            exchange.forget()
