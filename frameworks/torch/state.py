"""Broadcast of optimizer state, also for the elastic TorchState."""

from __future__ import annotations

from typing import Any

import torch
from horovod.torch.elastic.state import OptimizerStateHandler, get_handler_registry

from paceline.torch.host import horovod_torch as horovod
from paceline.torch.wrapper import WrappedOptimizer


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Give every rank the optimizer state of `root_rank`; as horovod.torch.broadcast_optimizer_state.

    To make state exist, Horovod takes a step with zero gradients on ranks that have none, which moves parameters if
    there is weight decay. Where only some ranks lack state (the root loaded a checkpoint), their parameters are put
    back afterwards, so that replicas stay equal.
    """
    wrapper = optimizer if type(optimizer) is WrappedOptimizer else None
    if wrapper is not None:
        optimizer = wrapper.held
    # Horovod's own wrappers (Adasum) are known to it.
    has_state = len(optimizer.state_dict()["state"]) > 0
    handle = horovod.allreduce_async_(
        torch.tensor([has_state], dtype=torch.int32), name="paceline.optimizer_has_state", op=horovod.Max
    )
    some_have_state = bool(horovod.synchronize(handle).item())
    kept = []
    if some_have_state and not has_state:
        kept = [(p, p.detach().clone()) for group in optimizer.param_groups for p in group["params"]]
    horovod.functions.broadcast_optimizer_state(optimizer, root_rank, model)
    with torch.no_grad():
        for parameter, value in kept:
            parameter.copy_(value)
    if wrapper is not None:
        in_flight = horovod.broadcast_object(wrapper.in_flight(), root_rank, name="paceline.in_flight")
        wrapper.forget()
        wrapper.load_in_flight(in_flight)


class WrappedOptimizerHandler(OptimizerStateHandler):
    """Saves, restores and synchronizes a WrappedOptimizer in a TorchState."""

    def sync(self) -> None:
        """Broadcast the state of rank 0."""
        broadcast_optimizer_state(self.value, root_rank=0)


def register_elastic_handler() -> None:
    """Let TorchState handle a WrappedOptimizer with WrappedOptimizerHandler."""
    registry: list[tuple[Any, Any]] = get_handler_registry()
    if (WrappedOptimizer, WrappedOptimizerHandler) not in registry:
        registry.insert(0, (WrappedOptimizer, WrappedOptimizerHandler))
