"""Names that identify the owner of a cluster, and removal of everything with such a name.

A cluster owns: network namespaces `/run/netns/<tag>-<host>`, the processes in them, and the folder `/run/<tag>`. All
its links and mounts live inside its namespaces and end with them. The tag is `paceline-<pid>-<start>-<number>` with the
owner's pid and start time. A pid may be reused but the pair may not, so leftovers of a dead owner can be distinguished
from clusters in use.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from paceline.examples.benchmarks.cluster import tools
from paceline.examples.benchmarks.cluster.errors import ClusterError

RUN = Path("/run")
NETNS = RUN / "netns"
KILL_TIMEOUT_S = 10.0

_TAG = re.compile(r"paceline-(\d+)-(\d+)-\d+")
_numbers = itertools.count()


def start_time(pid: int) -> int | None:
    """Start time of process `pid` in clock ticks since boot; None if there is no such process or it is a zombie."""
    try:
        # The program's name is in parentheses and may contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def new_tag() -> str:
    """Return a tag for the next cluster of this process."""
    return f"paceline-{os.getpid()}-{start_time(os.getpid())}-{next(_numbers)}"


def state_dir(tag: str) -> Path:
    """Folder with a cluster's keys, configurations and logs. Only root may write: sshd refuses keys otherwise."""
    return RUN / tag


def namespaces(tag: str) -> list[Path]:
    """Return the network namespaces of a cluster."""
    return sorted(NETNS.glob(f"{tag}-*"))


def remember_created(tag: str, directory: Path) -> None:
    """Record an empty folder outside the state folder that removal must delete."""
    with (state_dir(tag) / "created").open("a") as notes:
        notes.write(f"{directory}\n")


def processes_in(netns: Iterable[Path]) -> list[int]:
    """Return the pids of all processes in these network namespaces."""
    wanted = set()
    for path in netns:
        try:
            wanted.add(_identity(path))
        except OSError:
            continue
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _network_of(int(entry.name)) in wanted
    ]


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _network_of(pid: int) -> tuple[int, int] | None:
    try:
        return _identity(Path(f"/proc/{pid}/ns/net"))
    except OSError:  # it ended meanwhile
        return None


def kill_in(netns: list[Path], chosen: Callable[[int], bool] = lambda pid: True) -> list[int]:
    """Send SIGKILL to the processes in these namespaces that `chosen` selects until none is left. Return the survivors.

    Membership of the namespace is checked again after opening a pidfd of the process, so that a reused pid is never
    killed.
    """
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while True:
        left = [pid for pid in processes_in(netns) if pid != os.getpid() and chosen(pid)]
        if not left or time.monotonic() > deadline:
            return left
        for pid in left:
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                if _is_in(pid, netns):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            except ProcessLookupError:
                pass
            finally:
                os.close(handle)
        time.sleep(0.02)


def _is_in(pid: int, netns: list[Path]) -> bool:
    network = _network_of(pid)
    return network is not None and any(path.exists() and _identity(path) == network for path in netns)


def remove(tag: str) -> None:
    """Remove everything of a cluster; missing parts are ignored. Raises ClusterError with the names of what remains."""
    problems = []
    paths = namespaces(tag)
    left = kill_in(paths)
    if left:
        problems.append(f"processes that do not die: {left}")
    for path in paths:
        try:
            tools.call("ip", "netns", "delete", path.name)
        except ClusterError as error:
            if path.exists():  # not yet removed by another process
                problems.append(str(error))
    state = state_dir(tag)
    try:
        created = (state / "created").read_text().splitlines()
    except FileNotFoundError:
        created = []
    for directory in created:
        with contextlib.suppress(OSError):  # in use by another process, or removed
            Path(directory).rmdir()
    if not problems:
        shutil.rmtree(state, ignore_errors=True)
        if state.exists():
            problems.append(f"the folder {state}")
    if problems:
        raise ClusterError(
            f"The emulated cluster {tag} could not be removed completely: " + "; ".join(problems) + ".",
            "`paceline.examples.benchmarks.cluster.remove_stale()` as root tries again.",
        )


def remove_stale() -> list[str]:
    """Remove the clusters whose owner is dead and return their tags. Needs root, as creation does."""
    paths = [*RUN.glob("paceline-*"), *NETNS.glob("paceline-*")]
    found = {match[0]: match for path in paths if (match := _TAG.match(path.name))}
    stale = sorted(tag for tag, match in found.items() if start_time(int(match[1])) != int(match[2]))
    for tag in stale:
        remove(tag)
    return stale
