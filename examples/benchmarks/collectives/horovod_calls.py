"""Horovod's operations: over Gloo as they are, or on Paceline's collectives, as the environment asks for."""

from __future__ import annotations

from paceline.examples.benchmarks.collectives.systems import Caller
from paceline.examples.benchmarks.harness.assignment import Place
from paceline.examples.benchmarks.harness.system_horovod import connect
from paceline.launch.probe import calls


class HorovodCaller(calls.HorovodCaller):
    """A rank of the benchmark."""

    def leave(self) -> None:
        """Without a word: it might wait for peers."""


def setup(place: Place) -> Caller:
    """Connect through a rendezvous server in rank 0."""
    connect(place)
    return HorovodCaller(place.rank, place.size)
