"""Who is told when the ranks of a library begin anew: init() after shutdown()."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from paceline.native.world import process


class _Alive(weakref.WeakSet[Any]):
    """Exchanges of a library."""


def watch(exchange: Any) -> None:
    """Have `exchange.forget()` called when the ranks of its wire's library begin anew, while it lives."""
    process(exchange.wire.library).of(_Alive).add(exchange)


def new_world(library: ctypes.CDLL) -> None:
    """The ranks of `library` begin anew: nothing is in flight any more."""
    for exchange in list(process(library).of(_Alive)):
        exchange.forget()
