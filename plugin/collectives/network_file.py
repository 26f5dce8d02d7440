"""The network file: `paceline probe` writes it; plans, simulations and the collective `auto` read it.

A JSON object:

  format, version   "paceline-network", 1
  paceline          version of Paceline that measured
  hosts             host name of each rank, by rank
  block_bytes       block size of Paceline's collectives during the measurement
  pairs             for every two ranks in both directions, which may differ: `sender`, `receiver`; `latency_s`,
                    from the sender's call until a message of a few bytes arrives; `bytes_per_s` of a long message
  timings           for every `operation` ("broadcast", "allreduce"), `collective` (a name of
                    paceline.registry.collectives) and `size_bytes`: `message_s`, the collective alone, and `call_s`,
                    including the ranks' negotiation; both on the slowest rank, medians over calls

Cost models use `alpha_s` and `beta_s_per_byte`.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from paceline import renamed
from paceline.collectives.bounds import ALLREDUCE
from paceline.errors import UserError

FORMAT = "paceline-network"
VERSION: Final = 1

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
_REMEDY = "Measure the network with `paceline probe -o FILE`, and name that file."


class Pair(Struct, frozen=True):
    """Measurements from one rank to another."""

    sender: Count
    receiver: Count
    latency_s: Annotated[float, Meta(ge=0)]
    bytes_per_s: Positive


class Timing(Struct, frozen=True):
    """Measured duration of a collective among all ranks."""

    operation: str
    collective: str
    size_bytes: Count
    message_s: Positive
    call_s: Positive

    def __post_init__(self) -> None:
        """Accept the collectives' names of Paceline 0.1, too."""
        name = renamed.VALUES["collective"].get(self.collective, self.collective)
        msgspec.structs.force_setattr(self, "collective", name)


class NetworkFile(Struct, frozen=True, tag_field="format", tag=FORMAT):
    """Contents of a network file. Raises ValueError for values that contradict each other."""

    paceline: str
    hosts: tuple[str, ...]
    block_bytes: Count
    pairs: tuple[Pair, ...]
    timings: tuple[Timing, ...]
    version: Literal[1] = VERSION

    def __post_init__(self) -> None:
        ranks = len(self.hosts)
        wanted = {(sender, receiver) for sender in range(ranks) for receiver in range(ranks) if sender != receiver}
        found = [(pair.sender, pair.receiver) for pair in self.pairs]
        if ranks < 2 or len(found) != len(wanted) or set(found) != wanted:
            raise ValueError(f"{ranks} ranks need {len(wanted)} pairs, one for every two in each direction")

    @property
    def ranks(self) -> int:
        """Number of ranks that took part in the measurement."""
        return len(self.hosts)

    @property
    def _between_hosts(self) -> list[Pair]:
        """The pairs on different hosts; all pairs if there is one host."""
        return [pair for pair in self.pairs if self.hosts[pair.sender] != self.hosts[pair.receiver]] or list(self.pairs)

    @property
    def alpha_s(self) -> float:
        """Start-up of a message between two ranks: median over pairs on different hosts, if there are several hosts."""
        return median(pair.latency_s for pair in self._between_hosts)

    @property
    def beta_s_per_byte(self) -> float:
        """Seconds to move a byte: median over the same pairs."""
        return median(1 / pair.bytes_per_s for pair in self._between_hosts)

    def message_s(self, sender: int, receiver: int, size_bytes: int) -> float:
        """Seconds of a message of `size_bytes` from one rank to another. Raises ValueError for unknown ranks."""
        for pair in self.pairs:
            if (pair.sender, pair.receiver) == (sender, receiver):
                return pair.latency_s + size_bytes / pair.bytes_per_s
        raise ValueError(f"nothing was measured from rank {sender} to rank {receiver} of {self.ranks}")

    def samples(self, collective: str) -> list[tuple[float, float]]:
        """Return (bytes, seconds) of allreduces, by size.

        If `collective` was not measured (such as "auto"), each size has the time of its fastest collective.
        """
        timings = [timing for timing in self.timings if timing.operation == ALLREDUCE]
        named = [timing for timing in timings if timing.collective == collective]
        by_size: dict[int, float] = {}
        for timing in named or timings:
            by_size[timing.size_bytes] = min(timing.message_s, by_size.get(timing.size_bytes, timing.message_s))
        return [(float(size), seconds) for size, seconds in sorted(by_size.items())]

    def fastest(self, operation: str, size_bytes: int) -> str:
        """Return the fastest collective at the measured size nearest to `size_bytes` (by ratio), by `message_s`.

        Raises ValueError for an operation that was not measured.
        """
        of_operation = [timing for timing in self.timings if timing.operation == operation]
        if not of_operation:
            raise ValueError(f"no {operation} was measured")
        size = max(size_bytes, 1)
        sizes = {timing.size_bytes for timing in of_operation}
        nearest = min(sizes, key=lambda one: max(one, 1) / size if one > size else size / max(one, 1))
        at = [timing for timing in of_operation if timing.size_bytes == nearest]
        return min(at, key=lambda timing: timing.message_s).collective


def load(path: Path) -> NetworkFile:
    """Read the network file `path`. Raises UserError that names the file and the error in it."""
    return decoded(path, content(path))


def content(path: Path) -> bytes:
    """Return the bytes of `path`. Raises UserError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"The network file {path} cannot be read: {error.strerror}.", _REMEDY) from None


def decoded(path: Path, content: bytes) -> NetworkFile:
    """Decode the bytes of `path`. Raises UserError that describes the error in them."""
    try:
        return msgspec.json.decode(content, type=NetworkFile)
    except ValueError as error:  # msgspec's errors are
        raise UserError(f"The network file {path} cannot be used: {error}.", _REMEDY) from None


def write(network: NetworkFile, path: Path) -> None:
    """Write `network` to `path`. Raises UserError if that fails."""
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(network)) + b"\n")
    except OSError as error:
        raise UserError(
            f"The network file {path} cannot be written: {error.strerror}.", "Name a file in a folder you may write to."
        ) from None
