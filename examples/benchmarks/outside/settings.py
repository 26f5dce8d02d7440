"""Settings of runs of other projects' programs."""

from __future__ import annotations

import msgspec

from paceline.errors import UserError


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`program` of programs.py on `hosts` emulated hosts (1: this machine) with links of `rate` and `latency`.

    `ranks` in all: one per host, two on this machine. `inputs`: message sizes, models or lists, whichever the program
    takes; without them, its default. `folder` of its checkout: by default `outside/<name>` in the current folder.
    `warm_up` unmeasured and `steps` measured steps or calls of each run; `arguments` follow those of the program. Each
    system runs `repeats` times.
    """

    program: str
    hosts: int = 2
    ranks: int | None = None
    rate: str | None = "200mbit"
    latency: str | None = None
    systems: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    folder: str | None = None
    warm_up: int = 5
    steps: int = 20
    repeats: int = 5
    arguments: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Total number of ranks."""
        return self.ranks or (self.hosts if self.hosts > 1 else 2)

    def check(self) -> None:
        """Raise UserError for numbers that do not go together."""
        if self.size % self.hosts:
            raise UserError(
                f"{self.size} ranks cannot be divided evenly among {self.hosts} hosts.", "Give a multiple of hosts."
            )
        for name in ("steps", "repeats"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)} measures nothing.", f"Give {name}=1 or more.")
