"""PACELINE_NETWORK_FILE: `auto` predicts with a network that `paceline probe` measured, the same on all ranks."""

from __future__ import annotations

import ctypes
import hashlib
from dataclasses import dataclass
from pathlib import Path

from paceline import variables
from paceline.collectives import network_file
from paceline.collectives.bounds import ALLREDUCE, BROADCAST, LINEAR
from paceline.collectives.network_file import NetworkFile
from paceline.errors import UserError
from paceline.log import log
from paceline.native.agreement import everyone
from paceline.native.interruptible import interruptible
from paceline.native.prototypes import ERROR_BYTES
from paceline.registry.collectives import AUTO, COLLECTIVES, HOROVODS

VARIABLE = "PACELINE_NETWORK_FILE"
LIMIT_S = 60.0  # timeout for the other ranks to read their files
OPERATIONS = {BROADCAST: 0, ALLREDUCE: 1}  # core's numbers (measured_network.h)
# Operation -> collectives with their own timings.
METHODS = {BROADCAST: (HOROVODS, LINEAR), ALLREDUCE: tuple(name for name in COLLECTIVES if name != AUTO)}
# Sizes in the report: from 2**_FEWEST to below 2**_MOST bytes.
_FEWEST, _MOST = 2, 30
_SAME = f"Give all ranks the same {VARIABLE}, and hosts without a common file system a copy of the file."
_AGAIN = "Run `paceline probe` with the flags that say where this job's ranks are, or leave the file out."
_NONE, _BROKEN, _LEAST_DIGEST = 0, 1, 2


@dataclass(frozen=True)
class Place:
    """Position of this rank: its number among all ranks, and among the ranks on its host."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def forget(library: ctypes.CDLL) -> None:
    """Clear the network of an earlier world."""
    library.horovod_paceline_network(0, 0.0, 0.0, 0, 0, None, None, None, None, None, 0)


def use(library: ctypes.CDLL, path: Path | None) -> None:
    """Pass the network in `path` to `library`; None: there is none. Collective; rank 0 reports the result.

    Raises UserError on all ranks if a file is missing or broken, if the ranks' files differ, or if it was measured with
    other ranks on hosts. Elastic jobs, whose ranks change, ignore such a file instead.
    """
    found, number, reason = None, _NONE, None
    if path is not None:
        try:
            content = network_file.content(path)
            found, number = network_file.decoded(path, content), _digest(content)
        except UserError as error:
            number, reason = _BROKEN, error
    place = Place(
        *(int(getattr(library, f"horovod_{word}")()) for word in ("rank", "size", "local_rank", "local_size"))
    )
    misfit = "" if found is None else mismatch(found, place)
    everyones = everyone(library, "paceline.network", (number, int(bool(misfit))), _SAME, LIMIT_S)
    if reason is not None:
        raise reason
    _check_same([one[0] for one in everyones], place.rank)
    if found is None or path is None:
        return
    others = [str(rank) for rank, one in enumerate(everyones) if one[1]]
    if others:
        what = f"The network file {path} was measured elsewhere: {misfit or f'rank {others[0]} is not where it was'}."
        if not variables.elastic():
            raise UserError(what, _AGAIN)
        if place.rank == 0:
            log(f"{what} The ranks of an elastic job change: until they are as then, auto does without it.")
        return
    _hand_over(library, found, path)
    _follow(library, number, place.rank)
    if place.rank == 0:
        log(f"Collectives: {picks(library)} (auto, from {path})")


def _digest(content: bytes) -> int:
    """Return a digest of the file's bytes, within the range of `everyone` and above the reserved numbers."""
    return max(int.from_bytes(hashlib.sha256(content).digest()[:6], "big"), _LEAST_DIGEST)


def _check_same(numbers: list[int], rank: int) -> None:
    """Raise UserError, naming the ranks, unless all ranks have rank 0's file."""
    kinds = {_NONE: "no network file", _BROKEN: "one that cannot be used"}
    differing = [other for other, number in enumerate(numbers) if number != numbers[0]]
    if not differing:
        return
    words = [f"rank {other} has {kinds.get(numbers[other], 'one with other contents')}" for other in differing]
    zeros = kinds.get(numbers[0], "a network file of its own contents")
    raise UserError(
        f"Rank {rank}: expected one network file on all ranks, found that rank 0 has {zeros}, {', '.join(words)}.",
        _SAME,
    )


def mismatch(found: NetworkFile, place: Place) -> str:
    """Describe how this rank's place differs from the measurement; "" if it does not, as far as this rank sees."""
    if found.ranks != place.size:
        return f"among {found.ranks} ranks on {len(set(found.hosts))} hosts, and this job has {place.size} ranks"
    host = found.hosts[place.rank]
    then = Place(place.rank, found.ranks, found.hosts[: place.rank].count(host), found.hosts.count(host))
    if then == place:
        return ""
    return (
        f"rank {place.rank} was number {then.local_rank} of {then.local_size} ranks on its host, and is number "
        f"{place.local_rank} of {place.local_size} now"
    )


def _hand_over(library: ctypes.CDLL, found: NetworkFile, path: Path) -> None:
    known = [one for one in found.timings if one.collective in METHODS.get(one.operation, ())]
    count = len(known)
    error = ctypes.create_string_buffer(ERROR_BYTES)
    done = library.horovod_paceline_network(
        found.ranks,
        found.alpha_s,
        found.beta_s_per_byte,
        found.block_bytes,
        count,
        (ctypes.c_int32 * count)(*(OPERATIONS[one.operation] for one in known)),
        (ctypes.c_int32 * count)(*(COLLECTIVES[one.collective][0] for one in known)),
        (ctypes.c_double * count)(*(one.size_bytes for one in known)),
        (ctypes.c_double * count)(*(one.message_s for one in known)),
        error,
        ERROR_BYTES,
    )
    if done != 0:
        raise UserError(f"The network file {path} cannot be used: {error.value.decode(errors='replace')}.", _AGAIN)


def _follow(library: ctypes.CDLL, digest: int, rank: int) -> None:
    """Make all ranks use the network from the same operation on."""
    error = ctypes.create_string_buffer(ERROR_BYTES)
    follow = library.horovod_paceline_network_follow
    if interruptible(lambda: follow(digest, LIMIT_S, error, ERROR_BYTES)) != 0:
        raise UserError(f"Rank {rank} has read the network file: {error.value.decode(errors='replace')}.", _SAME)


def picks(library: ctypes.CDLL) -> str:
    """Describe the predicted fastest collectives: "allreduces below 16 KiB doubling, above ring; broadcasts ..."."""
    words = {number: name for name, (number, _) in COLLECTIVES.items()}
    parts = []
    for title, operation in (("allreduces", ALLREDUCE), ("broadcasts", BROADCAST)):
        fastest = [
            words[int(library.horovod_paceline_fastest(OPERATIONS[operation], 1 << power))]
            for power in range(_FEWEST, _MOST)
        ]
        parts.append(f"{title} {ranges(fastest)}")
    return "; ".join(parts)


def ranges(fastest: list[str]) -> str:
    """Format names for powers of two from 4 bytes on as ranges: "below 16 KiB doubling, above ring"."""
    ends = [n for n in range(1, len(fastest)) if fastest[n] != fastest[n - 1]]
    if not ends:
        return f"all by {fastest[0]}"
    words = [f"below {_size(1 << (_FEWEST + n))} {fastest[n - 1]}" for n in ends]
    return f"{', '.join(words)}, above {fastest[-1]}"


def _size(size_bytes: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << power:
            return f"{size_bytes >> power} {unit}"
    return f"{size_bytes} bytes"
