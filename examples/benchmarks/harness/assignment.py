"""What the controller and a rank tell each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TypeVar

from paceline.examples.benchmarks.harness.merging import Merging

PlaceType = TypeVar("PlaceType", bound="Place")

# Totals since the start: coordination rounds, messages, and their payload bytes. None: the system cannot tell.
Counters = Mapping[str, int]


@dataclass(frozen=True)
class Place:
    """Who a rank is. `host_names` and `host_addresses` list all hosts, which have equally many ranks.

    `folder` is one that all ranks of the system share and nobody else uses; `control` is the controller's socket.
    """

    rank: int
    size: int
    host_names: tuple[str, ...]
    host_addresses: tuple[str, ...]
    folder: str
    control: str

    @property
    def host(self) -> int:
        """The index of this rank's host."""
        return self.rank // self.ranks_per_host

    @property
    def ranks_per_host(self) -> int:
        """How many ranks a host has; the same on all."""
        return self.size // len(self.host_names)

    def to_json(self) -> str:
        """One line that `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls: type[PlaceType], text: str) -> PlaceType:
        """What `to_json` wrote."""
        fields = json.loads(text)
        for name in ("host_names", "host_addresses"):
            fields[name] = tuple(fields[name])
        return cls(**fields)


@dataclass(frozen=True)
class Assignment(Place):
    """Who a rank is and what it runs: `setup`, `averages` and `age` are those of the system (systems.py)."""

    setup: str
    averages: bool
    age: int
    model: str


@dataclass(frozen=True)
class Hello:
    """A rank has started; `pid` is what to stop and continue."""

    rank: int
    pid: int


@dataclass(frozen=True)
class Ready:
    """A rank has connected to the others and warmed up so far; its last step took `step_s`.

    `merging` is None for a system that merges nothing by plan.
    """

    step_s: float
    merging: Merging | None = None


@dataclass(frozen=True)
class WarmUp:
    """Make `steps` steps that nobody measures and, with `check`, one more after which every gradient is checked."""

    steps: int
    check: bool


@dataclass(frozen=True)
class Run:
    """Make `fill` steps without compute, `settle` ordinary ones, then `steps` measured ones."""

    fill: int
    settle: int
    steps: int


@dataclass(frozen=True)
class Measured:
    """What the measured steps of one rank took in all: wall clock, processor time of all threads, waits that gave up
    the processor (voluntary context switches), and what the system counted; and how it merges when they are over.
    """

    wall_s: float
    cpu_s: float
    wakeups: int
    counters: Counters | None
    merging: Merging | None = None
