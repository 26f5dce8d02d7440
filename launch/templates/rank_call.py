"""How files start a rank: `paceline rank`, whose flags are named here alone."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.launch.templates.quoting import shell

# Where nothing else can hold it: on a network of the job's own.
RENDEZVOUS_PORT = 29400


def told_by_scheduler(command: Sequence[str]) -> list[str]:
    """The user's command as a rank that learns its number from the scheduler's own variables."""
    return ["paceline", "rank", "--", *command]


def numbered(command: str, rank: str, size: int, rendezvous: str, before: Sequence[str] = ()) -> str:
    """The user's command as a rank that is told its number, where the scheduler numbers no tasks; for a shell.

    `command`, `rank` and `rendezvous` (HOST:PORT of rank 0) are quoted already, so that the last two may be variables.
    `before` are words in front of all, such as those that start a container.
    """
    return f"{shell([*before, 'paceline', 'rank'])} --rank {rank} --size {size} --rendezvous {rendezvous} -- {command}"
