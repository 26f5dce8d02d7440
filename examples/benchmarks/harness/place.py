"""Who a rank is, and how it says that it has started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A rank and its world. `host_names` and `host_addresses` list all hosts, which have equally many ranks.

    `folder` is shared by all ranks of the system and used by nobody else; `control` is the controller's socket.
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
        """Ranks of one host; all hosts have equally many."""
        return self.size // len(self.host_names)


@dataclass(frozen=True)
class Hello:
    """A rank has started; the controller stops and continues the process `pid`."""

    rank: int
    pid: int
