"""Random schedules of elastic jobs: at which steps ranks join, leave or are killed.

A job has names of this machine as its hosts. Ranks of a name that loses one by a kill are excluded from then on, so one
name is never chosen: min-np ranks stay.
"""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass
from enum import Enum

STEPS = 240
COMMIT_EVERY = 5
LEAST, MOST = 2, 4
EVENTS = 4
NAMES = ("localhost", "127.0.0.1", socket.gethostname())
MOMENTS = ("before", "backward", "after")


class Change(Enum):
    """Changes of the number of ranks."""

    JOIN = "join"
    LEAVE = "leave"
    KILL = "kill"


@dataclass(frozen=True)
class Event:
    """A change at `step`: `hosts` are the lines of the hosts' file from then on, `size` their ranks.

    `name`: host of which a rank is killed, at `moment` of the step; empty for other changes.
    """

    step: int
    change: Change
    hosts: tuple[str, ...]
    size: int
    name: str = ""
    moment: str = ""

    def __str__(self) -> str:
        return f"{self.change.value} at {self.step} ({self.size})"


@dataclass(frozen=True)
class Schedule:
    """The hosts at the beginning, and the changes."""

    hosts: tuple[str, ...]
    size: int
    events: tuple[Event, ...]

    def __str__(self) -> str:
        return f"{self.size} ranks: " + ", ".join(map(str, self.events)) if self.events else f"{self.size} ranks"


def undisturbed(size: int) -> Schedule:
    """A job of so many ranks in which nothing changes."""
    return Schedule((f"{NAMES[0]}:{size}",), size, ())


def drawn(seed: int) -> Schedule:
    """Draw a schedule: at least one join, one leave and one kill, and another of them."""
    dice = random.Random(seed)
    while True:
        found = _drawn(dice)
        if found is not None:
            return found


def _drawn(dice: random.Random) -> Schedule | None:
    """Return a schedule, or None if the changes that were drawn are not possible in their order."""
    names = list(NAMES)
    dice.shuffle(names)
    safe = dice.choice(names)
    slots = dict.fromkeys(names, 0)
    slots[safe] = LEAST - 1
    slots[dice.choice([name for name in names if name != safe])] = dice.randint(1, 2)
    begin = _lines(slots), sum(slots.values())
    changes = [*Change, dice.choice([*Change])]
    dice.shuffle(changes)
    events: list[Event] = []
    for number, change in enumerate(changes):
        # Far enough apart that a commit lies between two of them.
        step = STEPS // (EVENTS + 1) * (number + 1) + dice.randint(-15, 15)
        before = sum(slots.values())
        name = _chosen(dice, change, slots, safe)
        if not name:
            return None
        if change is Change.KILL:
            del slots[name]
        else:
            slots[name] += 1 if change is Change.JOIN else -1
        after = sum(slots.values())
        if not LEAST <= after <= MOST or after == before:
            return None
        killed = {"name": name, "moment": dice.choice(MOMENTS)} if change is Change.KILL else {}
        events.append(Event(step, change, _lines(slots), after, **killed))
    return Schedule(*begin, tuple(events))


def _chosen(dice: random.Random, change: Change, slots: dict[str, int], safe: str) -> str:
    """Return the name that gains or loses ranks; empty if there is none."""
    possible = {
        Change.JOIN: list(slots),
        Change.LEAVE: [name for name, count in slots.items() if count > (name == safe)],
        Change.KILL: [name for name, count in slots.items() if count and name != safe],
    }[change]
    return dice.choice(possible) if possible else ""


def _lines(slots: dict[str, int]) -> tuple[str, ...]:
    return tuple(f"{name}:{count}" for name, count in slots.items() if count)
