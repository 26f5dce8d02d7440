"""Where the demo's ranks run: two emulated hosts, a slowed loopback in a user namespace, or plain loopback."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paceline.errors import UserError
from paceline.launch.cluster import Cluster, tools
from paceline.launch.cluster.network import INTERFACE

RATE_BIT_S = 200_000_000
LATENCY_MS = 1  # one way, where there are hosts
PROBE_LIMIT_S = 10.0


@dataclass(frozen=True)
class Place:
    """Command prefix that enters the place, arguments of horovodrun, interface between ranks, and a description.

    `slow`: whether the link between the two ranks is limited to RATE_BIT_S in each direction.
    """

    enter: tuple[str, ...]
    horovodrun: tuple[str, ...]
    interface: str
    description: str
    slow: bool


def _slowed_loopback() -> tuple[str, ...]:
    # One queue carries both directions, so it gets twice the rate of one.
    setup = (
        "ip link set lo up mtu 1500 && "
        f"tc qdisc add dev lo root tbf rate {2 * RATE_BIT_S}bit burst 64kb latency 500ms && "
        'exec "$@"'
    )
    return ("unshare", "--user", "--map-root-user", "--net", "sh", "-c", setup, "sh")


def _works(enter: Sequence[str]) -> bool:
    try:
        done = subprocess.run([*enter, "true"], capture_output=True, timeout=PROBE_LIMIT_S, env=system_path(os.environ))
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def system_path(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with the folders of tc and ip on its PATH, where an ordinary user's does not look."""
    return {**environ, "PATH": environ.get("PATH", "") + ":/usr/sbin:/sbin"}


@contextlib.contextmanager
def best_place() -> Iterator[Place]:
    """Make the best place that this user may make, for two ranks, and remove it at the end."""
    rate = f"{RATE_BIT_S / 1e6:g} Mbit/s"
    try:
        tools.check()
    except UserError as error:
        why = error.problem
    else:
        with Cluster(2, f"{RATE_BIT_S // 1_000_000}mbit", latency=f"{LATENCY_MS}ms") as cluster:
            enter = tuple(map(str, cluster.command([])))
            hosts = ("-np", "2", "-H", cluster.host_list)
            yield Place(enter, hosts, INTERFACE, f"two emulated hosts, {rate} and {LATENCY_MS} ms apart", True)
        return
    slowed, here = _slowed_loopback(), ("-np", "2")
    if _works(slowed):
        yield Place(slowed, here, "lo", f"one host whose loopback is slowed to {rate}", True)
    else:
        yield Place((), here, "lo", f"one host with a fast loopback, so differences are small: {why}", False)
