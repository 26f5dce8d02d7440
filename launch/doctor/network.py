"""Network interfaces of this host: the one that Gloo uses, and host names without a usable address."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping

import psutil

from paceline.launch.doctor.findings import Finding, error, ok, warning
from paceline.launch.rank import interfaces

VARIABLE = "HOROVOD_GLOO_IFACE"
# Reserved for documentation: no packet is sent, but the system reports the route.
_FAR_AWAY = ("192.0.2.1", 9)
LEAST_MTU = 1280


def _addresses() -> dict[str, list[str]]:
    """IPv4 addresses of each interface."""
    return {
        name: [entry.address for entry in entries if entry.family == socket.AF_INET]
        for name, entries in psutil.net_if_addrs().items()
    }


def _towards_others() -> str:
    """Interface of the default route to other networks; "" if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(_FAR_AWAY)
        except OSError:
            return ""
        return interfaces.of_address(asking.getsockname()[0])


def all_interfaces() -> Iterator[Finding]:
    """Report all interfaces with addresses, and check their MTU."""
    addresses = _addresses()
    for name, state in sorted(psutil.net_if_stats().items()):
        if not addresses.get(name):
            continue
        what = f"interface {name}"
        found = f"{', '.join(addresses[name])}, MTU {state.mtu}"
        if not state.isup:
            yield ok(what, f"{found}, down")
        elif state.mtu < LEAST_MTU:
            yield warning(what, f"{found}: packets are very small", f"ip link set {name} mtu 1500, on all hosts alike.")
        else:
            yield ok(what, found)


def gloo(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Check the interface that Gloo uses."""
    addresses = _addresses()
    usable = [name for name, state in psutil.net_if_stats().items() if state.isup and addresses.get(name)]
    remedy = f"Unset {VARIABLE}, or choose one that is up and has an IPv4 address: {', '.join(sorted(usable))}."
    wanted = environ.get(VARIABLE)
    if wanted is None:
        way = _towards_others()
        found = "the one that hosts reach each other through, as horovodrun and `paceline rank` find out; "
        yield ok(VARIABLE, found + (f"{way} leads to other networks" if way else "only this host can be reached"))
    elif wanted not in addresses:
        yield error(VARIABLE, f"{wanted}: this host has no interface of that name", remedy)
    elif wanted not in usable:
        yield error(VARIABLE, f"{wanted} is down or has no IPv4 address", remedy)
    elif interfaces.is_loopback(addresses[wanted][0]):
        yield warning(VARIABLE, f"{wanted} is loopback: ranks on other hosts cannot be reached", remedy)
    else:
        yield ok(VARIABLE, f"{wanted}, {addresses[wanted][0]}")


def own_name() -> Iterator[Finding]:
    """Check the address of this host's name, which is sent to other hosts."""
    name = socket.gethostname()
    what = f"host name {name}"
    try:
        address = socket.gethostbyname(name)
    except OSError as failed:
        yield warning(what, f"has no address here ({failed})", f"Add a line with {name} to /etc/hosts.")
        return
    if interfaces.is_loopback(address):
        yield warning(
            what,
            f"means {address}, which is loopback; on one host this does no harm, on several Gloo may tell it to others",
            f"Give {name} its network address in /etc/hosts, or set {VARIABLE}.",
        )
    else:
        yield ok(what, f"means {address}")
