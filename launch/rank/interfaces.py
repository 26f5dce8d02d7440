"""Network interfaces: those where rank 0 listens, and the one for Gloo, which is used between a task and rank 0."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import psutil


def is_loopback(address: str) -> bool:
    """True if an IPv4 address never leaves its host."""
    return address.startswith("127.")


def to_listen_on(hosts: Sequence[str]) -> str:
    """Return the one address of this host by which all tasks connect to rank 0; "", which means all interfaces, if
    names decide, for a host may resolve its own name to another address than the others do.
    """
    named = {"127.0.0.1" if host == "localhost" else host for host in hosts}
    own = {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}
    return named.pop() if len(named) == 1 and named <= own else ""


def of_address(address: str) -> str:
    """Return the interface of this host with the IPv4 `address`; "" if there is none."""
    # All of 127/8 is loopback, but only its first address is listed.
    wanted = "127.0.0.1" if is_loopback(address) else address
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.family == socket.AF_INET and entry.address == wanted for entry in entries):
            return name
    return ""


def machine() -> str:
    """Identifier of this machine among machines with the same host name; new at each boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
