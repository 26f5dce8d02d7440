"""Connections of ranks: Horovod through a rendezvous server in rank 0, torch.distributed through a file."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from paceline.examples.benchmarks.harness.hosts import interface_of
from paceline.examples.benchmarks.harness.place import Place

RENDEZVOUS_TIMEOUT_S = 60.0
# A system waits for its turn longer than communication libraries allow a peer to be silent.
SILENCE_LIMIT_S = 24 * 3600


def connect_torch(place: Place) -> None:
    """Join torch.distributed's process group over Gloo. A file needs no port, and all hosts share the file system."""
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = interface_of(place.host_addresses[place.host])
    dist.init_process_group(
        "gloo",
        init_method=(Path(place.folder) / "store").as_uri(),
        rank=place.rank,
        world_size=place.size,
        timeout=timedelta(seconds=SILENCE_LIMIT_S),
    )


def connect_horovod(place: Place, library: str = "torch") -> None:
    """Initialize Horovod's `library` ("torch" or "tensorflow") over Gloo."""
    hvd: Any = importlib.import_module(f"horovod.{library}")

    with _rendezvous(place):
        hvd.init()
        # Once all ranks are connected, the server is no longer needed.
        if library == "torch":
            hvd.barrier()
        else:
            import tensorflow as tf

            hvd.allreduce(tf.zeros(()), name="connected")


def counters(library: str = "torch") -> Mapping[str, int] | None:
    """Return Horovod's totals so far: coordination rounds, messages, bytes. None if Horovod has no hook points."""
    from paceline.native import library as attach

    if not hasattr(attach.loaded(library), "horovod_paceline_counters"):
        return None
    return attach.counters(library)


def publish(path: Path, text: str) -> None:
    """Write a file that other ranks wait for: the address of a server."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)  # appears complete or not at all


def published(path: Path) -> str:
    """Wait for a file of rank 0 and return its text. Raises TimeoutError if it does not appear."""
    deadline = time.monotonic() + RENDEZVOUS_TIMEOUT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 started no server within {RENDEZVOUS_TIMEOUT_S:g} s")
        time.sleep(0.02)
    return path.read_text()


@contextmanager
def _rendezvous(place: Place) -> Iterator[None]:
    """Set the variables that `horovodrun` would set; rank 0 runs the rendezvous server meanwhile."""
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
        publish(port_file, str(port))
    else:
        port = int(published(port_file))
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
