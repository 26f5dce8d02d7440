"""Identity of this task from schedulers' variables and flags, with a check that they agree."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from paceline.errors import UserError
from paceline.horovod.shims.listening import address_of
from paceline.launch.rank import interfaces
from paceline.launch.rank.schedulers import SCHEDULERS, Scheduler

# Default port range of rank 0: below the ephemeral ports of systems (32768 and up).
FIRST_PORT, PORTS = 20000, 10000

NAME_IT = "Name the one that counts with --scheduler, or say it yourself: --rank R --size N --rendezvous HOST:PORT."


@dataclass(frozen=True)
class Given:
    """Identity given by flags; None and "" where no flag was given."""

    rank: int | None = None
    size: int | None = None
    rendezvous: str = ""
    scheduler: str = ""


@dataclass(frozen=True)
class Identity:
    """A task: its rank, the number of ranks, and the hosts where rank 0 may run. Local ranks only if known.

    `hosts_from`: the flag or variables with the names of `hosts`; "" if `hosts` needs none.
    """

    rank: int
    size: int
    local_rank: int | None
    job: str
    hosts: tuple[str, ...]
    port: int
    source: str
    notes: tuple[str, ...] = ()
    hosts_from: str = ""


class _Watched(Mapping[str, str]):
    """Variables that record which of them were read."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._read: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        value = self._environ[name]
        if value:
            self._read[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)

    def read(self) -> str:
        """Return the variables that were read, as NAME=value."""
        return ", ".join(f"{name}={value}" for name, value in self._read.items())


@dataclass(frozen=True)
class _Found:
    """Identity according to one scheduler, and the variables it came from."""

    scheduler: Scheduler
    rank: int
    size: int | None
    local_rank: int | None
    local_size: int | None
    names: dict[str, str] = field(compare=False)

    def says(self) -> str:
        size = f" of {self.size}" if self.size is not None else ""
        variables = ", ".join(f"{name}={value}" for name, value in self.names.items())
        return f"{self.scheduler.title} says rank {self.rank}{size} ({variables})"


def find(environ: Mapping[str, str], given: Given) -> Identity:
    """Return the identity of this task. Raises UserError if it is unknown, contradictory or impossible."""
    found, notes = _believed(environ, given)
    rank = given.rank if given.rank is not None else found[0].rank if found else None
    sizes = [one.size for one in found if one.size is not None]
    size = given.size if given.size is not None else sizes[0] if sizes else None
    if rank is None:
        raise _nobody(environ)
    if size is None:
        who = found[0].says() if found else f"--rank {rank}"
        raise UserError(f"{who}, but nothing tells how many ranks there are.", "Add --size N.")
    if not 0 <= rank < size:
        who = found[0].says() if found and given.rank is None else f"--rank {rank} --size {size}"
        raise UserError(
            f"{who}: rank {rank} of {size} cannot be, for ranks are 0 to {size - 1}.",
            "Start as many tasks as there are ranks, numbered without holes. " + NAME_IT,
        )
    job = _job(environ, found, given)
    hosts, port, hosts_from = _where(environ, found, given, size, job)
    local_rank = next((one.local_rank for one in found if one.local_rank is not None), None)
    source = found[0].scheduler.title if found else "flags"
    return Identity(rank, size, local_rank if given.rank is None else None, job, hosts, port, source, notes, hosts_from)


def is_task(environ: Mapping[str, str]) -> bool:
    """True if any scheduler's variables mark this process as a task, even if they contradict each other."""
    return any(scheduler.started(environ) for scheduler in SCHEDULERS)


def _believed(environ: Mapping[str, str], given: Given) -> tuple[list[_Found], tuple[str, ...]]:
    """Identities from the schedulers that started this task, innermost first, without contradictions; and notes.

    Notes name schedulers whose variables belong to their launcher and are ignored.
    """
    if given.scheduler:
        scheduler = next(one for one in SCHEDULERS if one.name == given.scheduler)
        if not scheduler.started(environ):
            missing = [name for name in (*scheduler.rank[:1], *scheduler.marks) if name not in environ]
            raise UserError(
                f"--scheduler {scheduler.name}: {' and '.join(missing)} is not set, so this is not a task of "
                f"{scheduler.title}.",
                "Start `paceline rank` once per task, by the scheduler's own launcher. " + NAME_IT,
            )
        return [_read(scheduler, environ, given)], ()
    if given.rank is not None and given.size is not None:
        return [], ()  # schedulers are not consulted
    found = [_read(one, environ, given) for one in SCHEDULERS if one.started(environ)]
    # A scheduler without a number of ranks, also not given by a flag, can only confirm another.
    found.sort(key=lambda one: one.size is None and given.size is None)
    kept: list[_Found] = []
    notes: list[str] = []
    for one in found:
        against = next((other for other in kept if _differ(one, other)), None)
        if against is None:
            kept.append(one)
        elif one.scheduler.name in against.scheduler.inside and _proven(against.scheduler, environ):
            notes.append(f"{against.says()}; {one.says()} is about its starter and set aside.")
        else:
            raise UserError(f"{against.says()}, but {one.says()}.", NAME_IT)
    return kept, tuple(notes)


def _proven(scheduler: Scheduler, environ: Mapping[str, str]) -> bool:
    return not scheduler.proof or scheduler.proof in environ


def _differ(one: _Found, other: _Found) -> bool:
    sizes = {one.size, other.size} - {None}
    return one.rank != other.rank or len(sizes) > 1


def _read(scheduler: Scheduler, environ: Mapping[str, str], given: Given) -> _Found:
    names: dict[str, str] = {}

    def number(*variables: str) -> int | None:
        name = next((name for name in variables if name in environ), None)
        if name is None:
            return None
        names[name] = environ[name]
        try:
            return int(environ[name])
        except ValueError:
            raise UserError(
                f"{name}={environ[name]} of {scheduler.title} is not a whole number.",
                "Leave the scheduler's variables as it sets them. " + NAME_IT,
            ) from None

    rank, size = number(*scheduler.rank), number(*scheduler.size)
    assert rank is not None
    local_rank, local_size = number(scheduler.local_rank), number(scheduler.local_size)
    rank -= scheduler.first
    return _Found(scheduler, rank, size, local_rank, local_size, names)


def _nobody(environ: Mapping[str, str]) -> UserError:
    titles = ", ".join(one.title for one in SCHEDULERS)
    halves = [
        f"{name} is set without {' and '.join(missing)}"
        for one in SCHEDULERS
        for name in one.rank
        if name in environ and (missing := [mark for mark in one.marks if mark not in environ])
    ]
    seen = f" {'; '.join(halves)}: this is a batch script, not a task." if halves else ""
    return UserError(
        f"No scheduler's variables tell which rank this is (looked for: {titles}).{seen}",
        "Start `paceline rank` once per task, for example `srun -n 4 paceline rank -- python train.py`, or say it "
        "yourself: --rank R --size N --rendezvous HOST:PORT. On one machine `paceline run -np 4` starts all ranks.",
    )


def _job(environ: Mapping[str, str], found: list[_Found], given: Given) -> str:
    """Name shared by all tasks of this start of the job, and rarely by other jobs."""
    parts = [f"{name}={environ[name]}" for one in found[:1] for name in one.scheduler.job if environ.get(name)]
    if not parts and found and found[0].scheduler.name == "kubernetes":
        parts = [f"pod {found[0].scheduler.hosts(environ)}"]
    source = found[0].scheduler.name if found else "flags"
    return f"{source}, user {os.getuid()}, {' '.join(parts) or given.rendezvous or 'no number'}"


def _where(
    environ: Mapping[str, str], found: list[_Found], given: Given, size: int, job: str
) -> tuple[tuple[str, ...], int, str]:
    host, colon, text = given.rendezvous.rpartition(":") if ":" in given.rendezvous else (given.rendezvous, "", "")
    port = FIRST_PORT + zlib.crc32(job.encode()) % PORTS
    only_here = interfaces.is_loopback(address_of(environ.get("HOROVOD_GLOO_IFACE")))
    if colon:
        if not (host and text.isdigit() and 0 < int(text) < 65536):
            raise UserError(f"--rendezvous {given.rendezvous} is not HOST:PORT.", "Write it like node1:29400.")
        port = int(text)
    if host and not only_here:
        return (host,), port, f"--rendezvous {given.rendezvous}"
    local_size = next((one.local_size for one in found if one.local_size is not None), None)
    if only_here or size == 1 or local_size == size:
        return ("127.0.0.1",), port, ""
    for one in found:
        watched = _Watched(environ)
        if hosts := one.scheduler.hosts(watched):
            return tuple(hosts), port, watched.read()
    problem = f"{found[0].scheduler.title} does not tell" if found else "Neither a flag nor a variable tells"
    raise UserError(
        f"{problem} this task on which host rank 0 runs.", "Name it: --rendezvous HOST:PORT, for all tasks."
    )
