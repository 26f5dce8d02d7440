"""PyTorch's DistributedDataParallel over Gloo, with its defaults."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from paceline.examples.benchmarks.harness.assignment import Assignment, Counters, Place
from paceline.examples.benchmarks.harness.hosts import interface_of
from paceline.examples.benchmarks.harness.systems import SILENCE_LIMIT_S, Running
from paceline.examples.benchmarks.networks.network import Network


def connect(place: Place) -> None:
    """Join the process group, through a file store (all hosts share the file system, and no port has to be chosen)."""
    os.environ["GLOO_SOCKET_IFNAME"] = interface_of(place.host_addresses[place.host])
    dist.init_process_group(
        "gloo",
        init_method=(Path(place.folder) / "store").as_uri(),
        rank=place.rank,
        world_size=place.size,
        timeout=timedelta(seconds=SILENCE_LIMIT_S),
    )


def setup(network: Network, assignment: Assignment) -> Running:
    """Connect and wrap the network."""
    connect(assignment)
    # init_sync=False: the parameters are equal already, and broadcasting hundreds of megabytes takes long.
    parallel = DistributedDataParallel(network, init_sync=False)
    optimizer = network.optimizer()
    steps = 0

    def step() -> None:
        nonlocal steps
        parallel.zero_grad(set_to_none=True)
        parallel().backward()
        optimizer.step()
        steps += 1

    def counters() -> Counters | None:
        # DDP sends one message a bucket and needs no coordination.
        data = parallel._get_ddp_logging_data()
        sizes = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes")
        if not sizes:
            return None
        buckets = [int(size) for size in str(sizes).split(",")]
        return {"coordination_rounds": 0, "messages": len(buckets) * steps, "bytes": sum(buckets) * steps}

    return Running(step, counters)
