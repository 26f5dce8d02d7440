"""Training step of each system, on a rank."""

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
BLOCKS = 8  # of FSDP
Counters = Mapping[str, int]


def _none() -> Counters | None:
    return None


@dataclass(frozen=True)
class Training:
    """`step` returns when the gradients are final; `counters` returns totals so far, or None."""

    step: Callable[[], None]
    counters: Callable[[], Counters | None] = _none


def horovod(network: Network, place: Place) -> Training:
    """Plain Horovod script; PACELINE_* variables may change its exchange."""
    connections.connect_horovod(place)
    import horovod.torch as hvd

    return Training(_wrapped(network, hvd.DistributedOptimizer), connections.counters)


def paceline(network: Network, place: Place) -> Training:
    """Script with Paceline's optimizer."""
    connections.connect_horovod(place)
    import paceline.torch as hvd

    return Training(_wrapped(network, hvd.DistributedOptimizer), connections.counters)


def weighted(network: Network, place: Place) -> Training:
    """Paceline's optimizer with weights; they are equal on all ranks, so means do not change."""
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
    """Paceline with the split exchange, and an optimizer of torch, whose parameters can be updated separately."""
    connections.connect_horovod(place)
    import paceline.torch as hvd

    held = torch.optim.SGD(network.parameters(), lr=0.0)
    return Training(_wrapped(network, hvd.DistributedOptimizer, held, exchange="split"), connections.counters)


def _wrapped(
    network: Network, wrap: Callable[..., Any], held: torch.optim.Optimizer | None = None, **options: Any
) -> Callable[[], None]:
    return _torch_step(
        network, wrap(held or network.optimizer(), named_parameters=list(network.named_parameters()), **options)
    )


def ddp_fp16(network: Network, place: Place) -> Training:
    """DistributedDataParallel that sends half-precision gradients."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    return ddp(network, place, fp16_compress_hook)


def ddp(network: Network, place: Place, hook: Any = None) -> Training:
    """PyTorch's DistributedDataParallel over Gloo, with its defaults or a communication hook of its own."""
    connections.connect_torch(place)
    # init_sync=False: the parameters are equal already; broadcasting hundreds of megabytes would take long.
    parallel = torch.nn.parallel.DistributedDataParallel(network, init_sync=False)
    if hook is not None:
        parallel.register_comm_hook(None, hook)
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


def zero(network: Network, place: Place) -> Training:
    """DistributedDataParallel with ZeroRedundancyOptimizer: each rank updates its share and broadcasts it."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    connections.connect_torch(place)
    parallel = torch.nn.parallel.DistributedDataParallel(network, init_sync=False)
    # Without this view it broadcasts each parameter by itself.
    optimizer = ZeroRedundancyOptimizer(
        network.parameters(), optimizer_class=torch.optim.SGD, lr=0.0, parameters_as_bucket_view=True
    )
    return Training(_torch_step(parallel, optimizer))


def fsdp(network: Network, place: Place) -> Training:
    """PyTorch's FSDP2, eight blocks of layers: weights are gathered before a block runs, gradients are scattered."""
    from torch.distributed.fsdp import fully_shard

    connections.connect_torch(place)
    for block in _blocks(list(network.children()), BLOCKS):
        fully_shard(block)
    fully_shard(network)
    return Training(_torch_step(network, torch.optim.SGD(network.parameters(), lr=0.0)))


def _blocks(layers: list[torch.nn.Module], most: int) -> list[list[torch.nn.Module]]:
    """Divide the layers in their order into at most this number of blocks of about equally many parameters."""
    sizes = [sum(one.numel() for one in layer.parameters()) for layer in layers]
    blocks: dict[int, list[torch.nn.Module]] = {}
    before = 0
    for layer, size in zip(layers, sizes, strict=True):
        blocks.setdefault(min(most - 1, most * before // max(1, sum(sizes))), []).append(layer)
        before += size
    return list(blocks.values())


def _torch_step(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    def step() -> None:
        module.zero_grad(set_to_none=True)
        module().backward()
        optimizer.step()

    return step


def alone(network: Network, place: Place) -> Training:
    """No communication: the step time of an exchange without cost."""
    return Training(_torch_step(network, network.optimizer()))


def communication(network: Network, place: Place) -> Training:
    """No compute: submit all gradients to Horovod at once, in the order of a backward pass, and wait for all."""
    connections.connect_horovod(place)
    import horovod.torch as hvd

    gradients = [(name, torch.zeros_like(parameter)) for name, parameter in network.named_parameters()][::-1]

    def step() -> None:
        handles = [hvd.allreduce_async_(gradient, name=f"gradient.{name}") for name, gradient in gradients]
        for handle in handles:
            # synchronize() alone would spin and take the processor from the threads that communicate.
            while not hvd.poll(handle):
                time.sleep(POLL_S)
            hvd.synchronize(handle)

    return Training(step, connections.counters)
