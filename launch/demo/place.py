"""Network of the demo's ranks: a slowed loopback in a network namespace, or plain loopback."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RATE_BIT_S = 200_000_000
PROBE_LIMIT_S = 10.0


@dataclass(frozen=True)
class Place:
    """Command prefix that enters the place, and a description.

    `slow`: True if the link between the two ranks is limited to RATE_BIT_S in each direction.
    """

    enter: tuple[str, ...]
    description: str
    slow: bool


def _slowed_loopback(*namespaces: str) -> tuple[str, ...]:
    # One queue carries both directions, so it gets twice the rate of one.
    setup = (
        "ip link set lo up mtu 1500 && "
        f"tc qdisc add dev lo root tbf rate {2 * RATE_BIT_S}bit burst 64kb latency 500ms && "
        'exec "$@"'
    )
    return ("unshare", *namespaces, "--net", "sh", "-c", setup, "sh")


def _works(enter: Sequence[str]) -> bool:
    try:
        done = subprocess.run([*enter, "true"], capture_output=True, timeout=PROBE_LIMIT_S, env=system_path(os.environ))
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def system_path(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` with the folders of tc and ip on its PATH, which an ordinary user's lacks."""
    return {**environ, "PATH": environ.get("PATH", "") + ":/usr/sbin:/sbin"}


def best_place() -> Place:
    """Return the best place for two ranks that this user may make; it ends with the commands that run in it."""
    # Root may lack the right to user namespaces, as in some containers.
    for namespaces in (("--user", "--map-root-user"), ()):
        enter = _slowed_loopback(*namespaces)
        if _works(enter):
            return Place(enter, f"one host whose loopback is slowed to {RATE_BIT_S / 1e6:g} Mbit/s", True)
    why = "this user cannot make a network namespace, or ip, tc or unshare is missing"
    return Place((), f"one host with a fast loopback, so differences are small: {why}", False)
