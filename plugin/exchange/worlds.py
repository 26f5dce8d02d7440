"""Notification of exchanges when a new world begins: init() after shutdown()."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from paceline.native.world import process


class _Alive(weakref.WeakSet[Any]):
    """Exchanges of a library."""


def watch(exchange: Any) -> None:
    """Have `exchange.forget()` called when a new world of its library begins, while it lives."""
    process(exchange.wire.library).of(_Alive).add(exchange)


def new_world(library: ctypes.CDLL) -> None:
    """Reset the exchanges of `library`: nothing is in flight in the new world."""
    for exchange in list(process(library).of(_Alive)):
        exchange.forget()
