"""How each system makes a training step, on a rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from paceline.examples.benchmarks.harness import connections
from paceline.examples.benchmarks.harness.place import Place
from paceline.examples.benchmarks.networks.network import Network

POLL_S = 0.5e-3
Counters = Mapping[str, int]


def _none() -> Counters | None:
    return None


@dataclass(frozen=True)
class Training:
    """`step` returns when the gradients are final; `counters` gives totals so far, if the system keeps any."""

    step: Callable[[], None]
    counters: Callable[[], Counters | None] = _none


def horovod(network: Network, place: Place) -> Training:
    """A script for Horovod; PACELINE_* variables change it without its knowledge."""
    connections.connect_horovod(place)
    import horovod.torch as hvd

    return Training(_wrapped(network, hvd.DistributedOptimizer), connections.counters)


def paceline(network: Network, place: Place) -> Training:
    """A script with Paceline's optimizer."""
    connections.connect_horovod(place)
    import paceline.torch as hvd

    return Training(_wrapped(network, hvd.DistributedOptimizer), connections.counters)


def weighted(network: Network, place: Place) -> Training:
    """The same with weights, which are equal on all ranks, so that means are those without."""
    connections.connect_horovod(place)
    import paceline.torch as hvd

    optimizer: Any = hvd.DistributedOptimizer(network.optimizer(), named_parameters=list(network.named_parameters()))

    def step() -> None:
        network.zero_grad(set_to_none=True)
        optimizer.weight = 32
        network().backward()
        optimizer.step()

    return Training(step, connections.counters)


def split(network: Network, place: Place) -> Training:
    """The same with the split exchange, and one of torch's optimizers, whose parameters may be updated apart."""
    connections.connect_horovod(place)
    import paceline.torch as hvd

    held = torch.optim.SGD(network.parameters(), lr=0.0)
    return Training(_wrapped(network, hvd.DistributedOptimizer, held, exchange="split"), connections.counters)


def _wrapped(
    network: Network, wrap: Callable[..., Any], held: torch.optim.Optimizer | None = None, **options: Any
) -> Callable[[], None]:
    optimizer = wrap(held or network.optimizer(), named_parameters=list(network.named_parameters()), **options)

    def step() -> None:
        network.zero_grad(set_to_none=True)
        network().backward()
        optimizer.step()

    return step


def ddp(network: Network, place: Place) -> Training:
    """PyTorch's DistributedDataParallel over Gloo, with its defaults."""
    connections.connect_torch(place)
    # init_sync=False: the parameters are equal already, and broadcasting hundreds of megabytes takes long.
    parallel = torch.nn.parallel.DistributedDataParallel(network, init_sync=False)
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

    return Training(step, counters)


def alone(network: Network, place: Place) -> Training:
    """No communication: the step time that an exchange without cost would reach."""
    optimizer = network.optimizer()

    def step() -> None:
        network.zero_grad(set_to_none=True)
        network().backward()
        optimizer.step()

    return Training(step)


def communication(network: Network, place: Place) -> Training:
    """No compute: all gradients submitted to Horovod at once, in the order of a backward pass, and a wait for all."""
    connections.connect_horovod(place)
    import horovod.torch as hvd

    gradients = [(name, torch.zeros_like(parameter)) for name, parameter in network.named_parameters()][::-1]

    def step() -> None:
        handles = [hvd.allreduce_async_(gradient, name=f"gradient.{name}") for name, gradient in gradients]
        for handle in handles:
            # synchronize() alone would spin meanwhile and take the processor from the threads that communicate.
            while not hvd.poll(handle):
                time.sleep(POLL_S)
            hvd.synchronize(handle)

    return Training(step, connections.counters)
