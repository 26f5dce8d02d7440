"""Network interface for Gloo: the one used between a task and rank 0."""

from __future__ import annotations

import socket
from pathlib import Path

import psutil


def is_loopback(address: str) -> bool:
    """True if an IPv4 address never leaves its host."""
    return address.startswith("127.")


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
