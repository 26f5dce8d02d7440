"""Horovod's DistributedOptimizer over Gloo, with its defaults, and the same script with merging by plan."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.examples.benchmarks.harness import merging
from paceline.examples.benchmarks.harness.assignment import Assignment, Counters, Place
from paceline.examples.benchmarks.harness.hosts import interface_of
from paceline.examples.benchmarks.harness.systems import SILENCE_LIMIT_S, Running
from paceline.examples.benchmarks.networks.network import Network

RENDEZVOUS_TIMEOUT_S = 60.0


def setup(network: Network, assignment: Assignment) -> Running:
    """Connect and wrap the network's optimizer."""
    connect(assignment)
    import horovod.torch as hvd

    return Running(training(network, hvd.DistributedOptimizer), counters)


def setup_merging(network: Network, assignment: Assignment) -> Running:
    """The same: PACELINE_FUSION alone makes the difference (systems.py). It also reports how far merging is."""
    return replace(setup(network, assignment), merging=merging.of_this_rank)


def connect(place: Place) -> None:
    """Initialize Horovod, through a rendezvous server in rank 0."""
    import horovod.torch as hvd

    with _rendezvous(place):
        hvd.init()
        hvd.barrier()  # all ranks are connected, none needs the server any more


def training(network: Network, wrap: Callable[..., Any]) -> Callable[[], None]:
    """A training step whose optimizer `wrap`, a DistributedOptimizer, makes exchange the gradients."""
    optimizer = wrap(network.optimizer(), named_parameters=list(network.named_parameters()))

    def step() -> None:
        network.zero_grad(set_to_none=True)
        network().backward()
        optimizer.step()

    return step


@contextmanager
def _rendezvous(place: Place) -> Iterator[None]:
    """Set the variables that `horovodrun` would set; rank 0 runs the server meanwhile."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
    from horovod.runner.http.http_server import RendezvousServer

    hosts = ",".join(f"{name}:{place.ranks_per_host}" for name in place.host_names)
    plan = get_host_assignments(parse_hosts(hosts), place.size)
    port_file = Path(place.folder) / "port"
    server = None
    if place.rank == 0:
        server = RendezvousServer()
        port = server.start()
        server.init(plan)
        draft = port_file.with_suffix(".draft")
        draft.write_text(str(port))
        draft.rename(port_file)  # appears complete or not at all
    else:
        port = _read_port(port_file)
    nics = [interface_of(place.host_addresses[place.host])]
    variables = {
        **create_run_env_vars(place.host_addresses[0], nics, port),
        **create_slot_env_vars(plan[place.rank]),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": SILENCE_LIMIT_S,
    }
    os.environ.update({name: str(value) for name, value in variables.items()})
    try:
        yield
    finally:
        if server is not None:
            server.stop()


def _read_port(port_file: Path) -> int:
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT_S
    while not port_file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 started no rendezvous server within {RENDEZVOUS_TIMEOUT_S:g} s")
        time.sleep(0.02)
    return int(port_file.read_text())


def counters() -> Counters | None:
    """Horovod's totals so far."""
    from paceline.native import library as attach

    # Only a Horovod that was built with hook points counts.
    if not hasattr(attach.loaded("torch"), "horovod_paceline_counters"):
        return None
    return attach.counters("torch")
