"""Averages of models: process sets whose ids are reused, and the state of local exchanges before an update."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.exchange import averaging
from paceline.exchange.eager import EagerOps
from paceline.exchange.in_flight_state import with_residuals
from paceline.local.outer import OuterUpdates
from paceline.local.settings import Local


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


def _local(**settings: Any) -> OuterUpdates:
    wire: Any = SimpleNamespace(
        graph_ops=None,
        encoding=SimpleNamespace(choice=SimpleNamespace(lossy=False)),
        update_set=lambda weights: None,
        value=lambda weight: weight,
        shared=lambda weights, members: weights,
        start_means=lambda part, *_, **__: dict,
        moments=lambda known: {},
    )
    return OuterUpdates(Local(**settings), wire, EagerOps(), lambda *_: None, set)


@pytest.mark.parametrize("moments_every", [0, 6])
def test_local_exchange_without_updates_has_no_state(moments_every: int) -> None:
    around = _local(sync_every=4, moments_every=moments_every)
    assert around.state() is None
    assert with_residuals(around.state(), None, Local.tag) is None
    for update in range(1, 13):
        around.update(dict, lambda: None, None)
        # Models and moments are those of all ranks after every 12th update; without moments after every 4th.
        assert (around.state() is None) == (update % (12 if moments_every else 4) == 0), update
        if (state := around.state()) and moments_every:
            again = _local(sync_every=4, moments_every=moments_every)
            again.load(state, dict)
            assert again.state() == state
    around.update(dict, lambda: None, None)
    around.forget()
    assert around.state() is None
