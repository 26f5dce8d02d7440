"""Addresses on which Horovod's services listen: the one address that other processes get, if there is one."""

from __future__ import annotations

import socket
from collections.abc import Collection

import psutil


def address_of(nics: str | Collection[str] | None) -> str:
    """Return the IPv4 address of these interfaces; "", which means all interfaces, unless there is exactly one."""
    named = {nics} if isinstance(nics, str) else set(nics or ())
    found = {
        entry.address
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if name in named and entry.family == socket.AF_INET
    }
    return found.pop() if len(found) == 1 else ""
