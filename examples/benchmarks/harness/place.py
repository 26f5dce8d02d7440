"""Identity of a rank, and its first message."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A rank and its world. `host_names` and `host_addresses` list all hosts, each with the same number of ranks.

    `folder` is private to the system and shared by all of its ranks; `control` is the controller's socket.
    """

    rank: int
    size: int
    host_names: tuple[str, ...]
    host_addresses: tuple[str, ...]
    folder: str
    control: str

    @property
    def host(self) -> int:
        """Index of this rank's host."""
        return self.rank // self.ranks_per_host

    @property
    def ranks_per_host(self) -> int:
        """Ranks per host; equal on all hosts."""
        return self.size // len(self.host_names)


@dataclass(frozen=True)
class Hello:
    """Message of a started rank; the controller stops and continues the process `pid`."""

    rank: int
    pid: int
