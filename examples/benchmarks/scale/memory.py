"""Whether this machine has room for so many ranks."""

from __future__ import annotations

from pathlib import Path

from paceline.errors import UserError

# Measured with PyTorch 2.13, the kernel's part among it: what a rank has to itself, what each other rank that it is
# connected to adds, and the process that all ranks of a system are forked from.
RANK_BYTES = 40e6
PEER_BYTES = 0.5e6
PARENT_BYTES = 150e6
_MEMINFO = Path("/proc/meminfo")


def needed_bytes(ranks: int, systems: int) -> float:
    """What `ranks` ranks of so many systems take, all of which are there at the same time."""
    return systems * (PARENT_BYTES + ranks * (RANK_BYTES + ranks * PEER_BYTES))


def available_bytes() -> int:
    """What programs can have without others being moved to disk, as the kernel estimates it."""
    lines = _MEMINFO.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def check(ranks: int, systems: int) -> None:
    """Raise UserError if this machine has no room for them."""
    needed, available = needed_bytes(ranks, systems), available_bytes()
    if needed > available:
        raise UserError(
            f"{ranks} ranks of {systems} systems need about {needed / 1e9:.1f} GB of memory;"
            f" {available / 1e9:.1f} GB are available.",
            "Give fewer --ranks, or fewer --systems at a time.",
        )
