"""The network interface that Gloo must use: the one through which a task and rank 0 reach each other."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil


def is_loopback(address: str) -> bool:
    """Whether an IPv4 address never leaves its host."""
    return address.startswith("127.")


def of_address(address: str) -> str:
    """The interface of this host that has the IPv4 `address`; "" if none has."""
    # All of 127/8 is loopback's, but only its first address is listed.
    wanted = "127.0.0.1" if is_loopback(address) else address
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.family == socket.AF_INET and entry.address == wanted for entry in entries):
            return name
    return ""


def machine() -> str:
    """What tells this machine from others that may have the same host name: new at each start of its system."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
