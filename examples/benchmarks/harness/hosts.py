"""Hosts for ranks: this machine over loopback, or emulated hosts with links of a given rate and latency."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.errors import UserError
from paceline.examples.benchmarks.cluster import Cluster
from paceline.examples.benchmarks.cluster.noise import noisy

_SIOCGIFADDR = 0x8915  # linux/sockios.h: the IPv4 address of an interface


@dataclass(frozen=True)
class Traffic:
    """Bytes that crossed a host's link since it was made."""

    sent_bytes: int
    received_bytes: int


class Hosts(Protocol):
    """Hosts that share this machine's file system and process ids."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hosts."""
        ...

    @property
    def addresses(self) -> tuple[str, ...]:
        """IPv4 addresses of the hosts."""
        ...

    def start(self, argv: Sequence[str], host: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a process on a host, in its own session; `env` is added to this process's environment."""
        ...

    def traffic(self) -> list[Traffic] | None:
        """Return the traffic of each host's link, or None without links."""
        ...


# An own session: Ctrl-C reaches only the controller, which then ends its ranks in order.
_POPEN: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}


class Loopback:
    """One host: this machine."""

    names = ("localhost",)
    addresses = ("127.0.0.1",)

    def start(self, argv: Sequence[str], host: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a process on this machine."""
        return subprocess.Popen(argv, env={**os.environ, **env}, **_POPEN)

    def traffic(self) -> list[Traffic] | None:
        """Return None: loopback is not a link."""
        return None


class Emulated:
    """Hosts of an emulated cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.names = tuple(cluster.names)
        self.addresses = tuple(cluster.addresses)

    def start(self, argv: Sequence[str], host: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a process on one of the hosts."""
        return self._cluster.popen(argv, host, env, **_POPEN)

    def traffic(self) -> list[Traffic] | None:
        """Return the traffic of each host's link."""
        return [Traffic(link.sent_bytes, link.received_bytes) for link in self._cluster.counters()]


@contextmanager
def open_hosts(count: int, rate: str | None, latency: str | None = None, noise: float | None = None) -> Iterator[Hosts]:
    """Context with `count` hosts: this machine, or from two hosts on an emulated cluster, which needs root.

    `rate`: rate of the links; None for no limit. `latency`: one-way time from host to host; None adds none to the
    machine's own. `noise`: 99th percentile over median of the time of a byte on a link (cluster/noise.py).
    """
    if count == 1 and noise is not None:
        raise UserError(f"noise={noise:g} has no effect on one host: its ranks use loopback.", "Give hosts=2.")
    if count == 1:
        if latency is not None:
            raise UserError(f"latency={latency} has no effect on one host: its ranks use loopback.", "Give hosts=2.")
        yield Loopback()
        return
    with Cluster(hosts=count, rate=rate, latency=latency) as cluster:
        with nullcontext() if noise is None else noisy(cluster, rate, noise):
            yield Emulated(cluster)


def interface_of(address: str) -> str:
    """Network interface of this host with the IPv4 address. Raises UserError if there is none."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:  # the interface has no IPv4 address
                continue
            found[socket.inet_ntoa(answer[20:24])] = name
    if address not in found:
        listed = ", ".join(f"{name} {other}" for other, name in found.items())
        raise UserError(f"No interface of this host has the address {address}.", f"Its interfaces: {listed}.")
    return found[address]
