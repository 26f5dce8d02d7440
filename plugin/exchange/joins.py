"""hvd.join() under exchanges in which a rank that has joined cannot count as zeros.

A mean of models with zeros in place of one, or an update without the rank that owns its part, would be wrong without an
error. So ranks compare their numbers of updates before they join.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import weakref
from typing import Any

from paceline.exchange.base import Exchange
from paceline.native.library import loaded
from paceline.native.world import process

_MARK = "_paceline_meets_first"
# Modules of Horovod with the function, by the word of `loaded`.
_MODULES = {
    "torch": ("horovod.torch", "horovod.torch.mpi_ops"),
    "tensorflow": ("horovod.tensorflow", "horovod.tensorflow.mpi_ops"),
}


class _Known:
    """Exchanges of one library that meet before a join, in the order of construction."""

    def __init__(self) -> None:
        self.exchanges: list[weakref.ref[Exchange]] = []


def before_joins(exchange: Exchange) -> None:
    """Let `hvd.join()` call `exchange.before_join()` while the exchange lives."""
    process(exchange.wire.library).of(_Known).exchanges.append(weakref.ref(exchange))


def meet_before_joins(framework: str) -> None:
    """Let `join` of Horovod's modules of a framework, "torch" or "tensorflow", call `before_join` first."""
    for name in _MODULES[framework]:
        module = sys.modules.get(name)
        original = getattr(module, "join", None)
        if original is not None and not hasattr(original, _MARK):
            setattr(module, "join", _meeting(original, framework))  # noqa: B010  a module has no such attribute


def _meeting(original: Any, framework: str) -> Any:
    @functools.wraps(original)
    def join(*arguments: Any, **options: Any) -> Any:
        before_join(loaded(framework))
        return original(*arguments, **options)

    setattr(join, _MARK, True)
    return join


def before_join(library: ctypes.CDLL) -> None:
    """Meet the other ranks if an exchange needs equally many updates of all.

    Raises UsageError if ranks have made different numbers, UserError if some ranks do not join within a minute.
    """
    if not library.horovod_is_initialized():
        return  # Horovod's own error
    gc.collect()  # an optimizer that a rank no longer reaches may be alive in a cycle, on some ranks only
    known = process(library).of(_Known)
    known.exchanges = [one for one in known.exchanges if one() is not None]
    for one in known.exchanges:
        exchange = one()
        if exchange is None or exchange.wire.process_set.process_set_id is None:
            continue
        if exchange.wire.process_set.included():
            exchange.before_join()
