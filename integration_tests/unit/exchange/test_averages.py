"""Averages of models: process sets whose ids are reused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.exchange import averaging


class Weight:
    """A variable that remembers what it was assigned."""

    name, dtype = "weight", "float32"

    def __init__(self) -> None:
        self.assigned: list[Any] = []

    def assign(self, value: Any) -> None:
        self.assigned.append(value)


class SetsOnly:
    """A wire module whose means are the ids of the process sets that reduce them."""

    LIBRARY = "torch"

    def __init__(self) -> None:
        self.made: list[Any] = []

    def value(self, variable: Any) -> Any:
        return variable

    def Reducer(self, settings: Any) -> Any:
        self.made.append(settings.process_set)
        return lambda held, *_: [settings.process_set.process_set_id for _ in held]


def test_new_process_set_with_the_id_of_a_removed_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(averaging, "loaded", lambda library: None)
    horovod = SimpleNamespace(
        Average=0, Compression=SimpleNamespace(none=None), global_process_set=SimpleNamespace(process_set_id=0)
    )
    wire, weight = SetsOnly(), Weight()
    average = averaging.averager(horovod, wire, SimpleNamespace(Settings=SimpleNamespace))
    first, second = SimpleNamespace(process_set_id=1), SimpleNamespace(process_set_id=1)
    for _ in range(2):
        average([weight], process_set=first)
    first.process_set_id = None  # removed, and its id given to another one
    for _ in range(2):
        average([weight], process_set=second)
    average([weight])
    assert weight.assigned == [1, 1, 1, 1, 0]
    assert wire.made == [first, second, horovod.global_process_set], "compiled operations are kept"
