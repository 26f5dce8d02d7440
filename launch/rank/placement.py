"""Local and cross ranks, from the host that every task reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True)
class Task:
    """One task as it described itself. `machine` distinguishes hosts of one name; `local_rank`: from its scheduler."""

    rank: int
    host: str
    machine: str
    local_rank: int | None = None


class Slot(msgspec.Struct, frozen=True):
    """A rank's place in Horovod's terms: cross ranks count the hosts that have a rank with the same local rank."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int


def place(tasks: Sequence[Task]) -> list[Slot]:
    """Return the slots by rank.

    Local ranks are the schedulers' if these are 0, 1, ... on every host, because devices are bound by them; otherwise
    they follow the ranks.
    """
    hosts: dict[tuple[str, str], list[Task]] = {}
    for task in sorted(tasks, key=lambda task: task.rank):
        hosts.setdefault((task.host, task.machine), []).append(task)
    complete = all({task.local_rank for task in those} == set(range(len(those))) for those in hosts.values())
    local: dict[int, int] = {}
    for those in hosts.values():
        for at, task in enumerate(those):
            local[task.rank] = task.local_rank if complete and task.local_rank is not None else at
    names = _names(list(hosts))
    slots = []
    for key, those in hosts.items():
        for task in those:
            across = [other for other, them in hosts.items() if len(them) > local[task.rank]]
            slots.append(
                Slot(
                    hostname=names[key],
                    rank=task.rank,
                    local_rank=local[task.rank],
                    cross_rank=across.index(key),
                    size=len(tasks),
                    local_size=len(those),
                    cross_size=len(across),
                )
            )
    return sorted(slots, key=lambda slot: slot.rank)


def _names(hosts: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Unique name of every host: Horovod identifies hosts by name, and some clusters give all the same name."""
    made: dict[tuple[str, str], str] = {}
    for key in hosts:
        name, number = key[0], 2
        while name in made.values():
            name, number = f"{key[0]}-{number}", number + 1
        made[key] = name
    return made
