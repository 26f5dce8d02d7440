"""Listening sockets of a job: every one that its processes open, and those that are open while ranks train."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

VARIABLE = "LISTENS"  # of log_listens.c: the file that it writes


@dataclass(frozen=True)
class Socket:
    """A socket at the moment when it begins to listen. `caller`: the C++ function, or "Python"."""

    pid: int
    address: str
    port: int
    caller: str
    command: str


def logged(path: Path) -> list[Socket]:
    """Sockets in the file that log_listens.c has written."""
    found = []
    for line in path.read_text().splitlines():
        pid, address, port, library, offset, command = line.split("\t")
        found.append(Socket(int(pid), address, int(port), _function(library, int(offset)), command))
    return found


def open_now(path: str) -> set[tuple[str, int]]:
    """Addresses and ports on which the processes with VARIABLE=`path` listen."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get(VARIABLE) == path:
                connections = process.net_connections("inet")
                found |= {(at.laddr.ip, at.laddr.port) for at in connections if at.status == psutil.CONN_LISTEN}
        except psutil.Error:
            continue  # it has ended, or is another user's
    return found


@cache
def _symbols(library: str) -> list[tuple[int, str]]:
    output = subprocess.run(["nm", "-C", "--defined-only", library], capture_output=True, text=True, timeout=120).stdout
    lines = (line.split(maxsplit=2) for line in output.splitlines())
    return sorted((int(words[0], 16), words[2]) for words in lines if len(words) == 3 and words[1] in "tT")


def _function(library: str, offset: int) -> str:
    if "horovod" not in library:
        return "Python"
    return max((one for one in _symbols(library) if one[0] <= offset), default=(0, library))[1]
