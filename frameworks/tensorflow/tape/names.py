"""Names of operations of synchronous tapes: one for each list of sources.

A tape is made anew in every step, and its operations may be in flight beside those of other tapes: in nested
tf.functions, or in other threads. So names are numbered by the variables that tapes differentiate, in the order of
first use, and within a graph also by how often it differentiates them.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from paceline.exchange.own_names import own_name
from paceline.native.library import loaded, world
from paceline.tensorflow.horovod import wire


class _Named:
    """The name of tapes with one name, process set and list of sources, in one world."""

    def __init__(self, key: tuple[str, int], name: str, sources: Sequence[Any]) -> None:
        self.key = key
        self.name = name
        self._world = world(loaded("tensorflow"))
        # A variable that is gone is not the one that has its place in memory then. Tensors are others in every step.
        self._sources = [weakref.ref(one) if isinstance(one, tf.Variable) else None for one in sources]

    @property
    def alive(self) -> bool:
        """Whether its variables and its world are still there."""
        here = self._world is world(loaded("tensorflow"))
        return here and all(one is None or one() is not None for one in self._sources)

    def of(self, key: tuple[str, int], sources: Sequence[Any]) -> bool:
        """Whether it is the name of these tapes."""
        mine = [None if one is None else one() for one in self._sources]
        theirs = [one if isinstance(one, tf.Variable) else None for one in sources]
        return self.key == key and len(mine) == len(theirs) and all(map(_same, mine, theirs))


def _same(one: Any, other: Any) -> bool:
    return one is other


_names: list[_Named] = []
_in_graphs: weakref.WeakKeyDictionary[Any, list[_Named]] = weakref.WeakKeyDictionary()


def name_for(name: str, process_set: Any, sources: Sequence[Any]) -> str:
    """The name of operations for gradients of `sources` (tf.Variables and tensors), here and now."""
    key = name, process_set.process_set_id
    graph = wire.here()
    taken = [] if graph is None else _in_graphs.setdefault(graph, [])
    _names[:] = [one for one in _names if one.alive]
    found = next((one for one in _names if one not in taken and one.of(key, sources)), None)
    if found is None:
        found = _Named(key, own_name(loaded("tensorflow"), key[1], name, "tape "), sources)
        _names.append(found)
    if graph is not None:
        taken.append(found)
    return found.name
