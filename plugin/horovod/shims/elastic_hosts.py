"""Elastic jobs: the first host starts the job if it has enough slots, and every wait for hosts is reported.

Horovod probes for a network interface that all hosts share, and waits until there are two hosts. `driver` is its
ElasticDriver, `settings` are horovodrun's.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import Any

import psutil
from horovod.runner.elastic.discovery import HostDiscovery
from horovod.runner.util import network

from paceline.errors import UsageError

# Seconds that the discovery script may take for its first host before the wait is reported.
SILENCE_S = 5.0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _interfaces(address: str | None = None) -> list[str]:
    """Return this host's interfaces with an IPv4 address, or with `address`; loopback last."""
    found = {
        name: entry.address
        for name, entries in sorted(psutil.net_if_addrs().items())
        for entry in entries
        if entry.family == socket.AF_INET and address in (None, entry.address)
    }
    return sorted(found, key=lambda name: found[name].startswith("127."))


class _ThisHostOnly(HostDiscovery):
    """Omit hosts that could not reach ranks connected over loopback, and report each once."""

    def __init__(self, discovery: Any, host: str) -> None:
        self._discovery = discovery
        self._host = host
        self._reachable = {host: True}

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        found: dict[str, int] = self._discovery.find_available_hosts_and_slots()
        for name in found.keys() - self._reachable:
            self._reachable[name] = not network.filter_local_addresses([name])
            if not self._reachable[name]:
                _say(
                    f"horovodrun leaves out the host {name}: the job began when {self._host} was the only one, so its "
                    f"ranks are connected over loopback.\nLet the discovery script print a name of {self._host} that "
                    "other hosts know, or name the interface that all hosts share: --network-interfaces NAME."
                )
        return {name: slots for name, slots in found.items() if self._reachable[name]}


def of_only_host(driver: Any, settings: Any, min_hosts: int) -> set[str] | None:
    """Return the interface for a job whose slots are all on this host, where Horovod would wait for a second one.

    It is the interface of the host's name: if only this host resolves the name, no other host can join. None if Horovod
    must probe: there are more hosts, the only one is another, or the user named interfaces.
    """
    if settings.nics or min_hosts < 2:
        return None
    # Horovod discovers hosts under this condition: none can be added in between.
    with driver._wait_hosts_cond:
        names = driver.wait_for_available_slots(settings.num_proc).host_assignment_order
        if len(names) != 1 or network.filter_local_addresses(names):
            return None
        (name,) = names
        address = network.resolve_host_address(name)
        if address.startswith("127."):
            driver._host_manager._discovery = _ThisHostOnly(driver._host_manager._discovery, name)
    interface = _interfaces(address)[0]
    if not address.startswith("127."):
        _say(
            f"horovodrun: {name} is the only host so far. Ranks use its interface {interface} ({address}), and hosts "
            "that come later must have one of that name; --network-interfaces NAME sets another."
        )
    return {interface}


def wait(driver: Any, limit: Any, min_num_proc: int, min_hosts: int) -> None:
    """Wait until the hosts change or `limit` is over; report first what the job lacks, if that is new.

    The caller holds the driver's condition, and checks again afterwards.
    """
    hosts = driver._host_manager.current_hosts
    waited_s = limit._timeout - limit.remaining()
    if not hosts.available_hosts and waited_s < SILENCE_S:  # not unusual yet
        driver._wait_hosts_cond.wait(min(SILENCE_S - waited_s, limit.remaining()))
        return
    text = _lacking(hosts, min_num_proc, min_hosts)
    if getattr(limit, "paceline_said", None) != text:
        limit.paceline_said = text
        _say(f"horovodrun waits up to {limit.remaining():.0f} s {text}")
    driver._wait_hosts_cond.wait(limit.remaining())


def _lacking(hosts: Any, min_num_proc: int, min_hosts: int) -> str:
    """Describe what the job waits for, the hosts found, and the remedy."""
    usable = ", ".join(f"{name}:{hosts.get_slots(name)}" for name in hosts.host_assignment_order)
    failed = ", ".join(sorted(hosts.host_slots.keys() - hosts.available_hosts))
    there = f"Hosts found: {usable or 'none'}{failed and f'; left out because they failed: {failed}'}."
    if hosts.count_available_slots() < min_num_proc:
        return (
            f"for slots for {min_num_proc} ranks. {there}\n"
            "Let the discovery script print more hosts (NAME:SLOTS, one per line) or ask for fewer ranks with -np and "
            "--min-np; --elastic-timeout SECONDS sets how long to wait."
        )
    return (
        f"for a second host, to learn which network interface hosts share. {there}\n"
        f"The slots are enough for {min_num_proc} ranks: to start at once, name the interface with "
        "--network-interfaces NAME (`ip address` on the host lists them)."
    )


def local_interfaces(settings: Any, of_loopback: Callable[[Any], set[str]]) -> set[str]:
    """Return the interfaces for ranks that are all on this host: those that the user named, else loopback.

    Raises UsageError if this host has none of the named interfaces.
    """
    here = _interfaces()
    named = [name for name in here if name in (settings.nics or ())]
    if settings.nics and not named:
        raise UsageError(
            f"--network-interfaces {','.join(sorted(settings.nics))}: no such interface with an IPv4 address on this "
            "host.",
            f"It has {', '.join(here)}.",
        )
    # Use only loopback if it is named, as Horovod does.
    if not named or any(name in named for name in _interfaces("127.0.0.1")):
        return of_loopback(settings)
    return set(named)
